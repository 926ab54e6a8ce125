package daemon_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/dhcp/dhcptest"
	"fairlead/internal/engine"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// refusals receives a value when a step was refused because its ports are not open.
type refusals chan struct{}

func (r refusals) Applied(_ time.Duration, err error) {
	if errors.As(err, new(*engine.UnopenedError)) {
		select {
		case r <- struct{}{}:
		default: // the test waits for one
		}
	}
}

func (refusals) Healed(string, int) {}

// killProxy publishes a port of a sandbox via the proxy and kills the proxy. The next proxy begins when open is called.
func (w *world) killProxy(shop watchedSandbox) (open func()) {
	w.Helper()
	w.publish(shop, published(model.ViaProxy, 8080))
	w.reaches("127.0.0.1:8080")
	begun, opens := make(chan struct{}), make(chan struct{})
	w.onProxy = func() { close(begun); <-opens }
	if err := unix.Kill(w.proxy, unix.SIGKILL); err != nil {
		w.Fatal(err)
	}
	w.awaits("the proxy has ended", w.proxyDone)
	w.proxyEnded <- struct{}{}
	w.awaits("another proxy is started", begun)
	return func() { close(opens) }
}

// awaits waits until the channel is closed.
func (w *world) awaits(what string, closed <-chan struct{}) {
	w.Helper()
	select {
	case <-closed:
	case <-time.After(place.Timeout):
		w.Fatalf("timeout: %s", what)
	}
}

// countProxies makes the daemon of the world start proxies that the test can kill. w.proxy is the last one.
func (w *world) countProxies() {
	w.proxyEnded = make(chan struct{}, 1)
	w.startProxy = func(life context.Context) (engine.Proxy, error) {
		if w.onProxy != nil {
			w.onProxy()
		}
		p, err := proxy.Start(life, child.Place{Netns: w.host.Netns()})
		if err == nil {
			w.proxy, w.proxyDone = p.PID(), p.Done()
		}
		return p, err
	}
}

// lease attaches a sandbox under a name to a network, with a lease.
func (w *world) lease(b watchedSandbox, name, network string) {
	w.Helper()
	req := to(b)
	req.Name, req.Network, req.DHCP = name, network, true
	w.attach(req)
}

// TestRequestsAfterTheProxyDied: requests that come after the proxy has died and before the next one has opened the
// ports wait for it, and succeed.
func TestRequestsAfterTheProxyDied(t *testing.T) {
	w := newWorld(t)
	s, refused := dhcptest.NewServer(), make(refusals, 100)
	w.dhcp, w.meter = s.Run, refused
	w.countProxies()
	w.start()
	w.sh("ip link set lo up; ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	n := lan
	n.Origin = model.FromDocker
	w.network(n)
	w.network(model.Network{Name: "wire", Driver: model.DriverMacvlan, Parent: "up0"})
	w.network(model.Network{Name: "far", Driver: model.DriverMacvlan, Parent: "up1"})
	for i, name := range []string{"dead", "left", "removed"} {
		if err := w.external(name, "", "/nowhere/"+name, byte(10+i), uint16(8010+i)); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	w.start() // so that the endpoint "dead" may be displaced
	shop, joined, ended := w.watchedSandbox(), w.watchedSandbox(), w.watchedSandbox()
	leased, released := w.watchedSandbox(), w.watchedSandbox()
	for _, b := range []watchedSandbox{shop, joined} {
		b.serves(t, "0.0.0.0:80")
	}
	w.attach(to(shop))
	w.attach(to(ended))
	w.lease(leased, "web", "wire")
	w.lease(released, "gone", "far")
	a := model.Attachment{Origin: model.FromDocker, Ref: "docker:joined", Endpoint: model.Endpoint{Name: "joined",
		Network: "lan", HostInterface: "fd-joined", Addresses: addrs("172.30.0.20", "fd00:30::20")}}
	if _, err := w.Reserve(a); err != nil {
		t.Fatal(err)
	}
	group, in := w.group()
	w.loadServices()
	loaded, _ := w.group()
	if _, err := w.Admit(api.Workload{Name: "early", Ref: "container:early", Cgroup: loaded,
		Publishes: published("", 8091)}); err != nil {
		t.Fatal(err)
	}
	open := w.killProxy(shop)

	results := map[string]chan error{}
	for name, request := range map[string]func() error{
		"join": func() error {
			e, config, err := w.Join("joined", "/proc/"+joined.pid+"/ns/net")
			if err == nil {
				w.take(joined, e, config)
			}
			return err
		},
		"leave":  func() error { return w.Leave("left") },
		"remove": func() error { return w.Remove("removed") },
		"displace": func() error {
			gone, err := w.Displace("dead")
			if err == nil && !gone {
				return errors.New("it is still there")
			}
			return err
		},
		"admit": func() error {
			_, err := w.Admit(api.Workload{Name: "app", Ref: "container:app", Cgroup: group,
				Publishes: published("", 8090)})
			return err
		},
		"create a network": func() error {
			_, err := w.CreateNetwork(model.Network{Name: "new", Driver: model.DriverBridge,
				Subnets: []model.Subnet{{Prefix: prefix("172.31.0.0/16")}}}, false)
			return err
		},
		"set a service": func() error {
			_, err := w.SetService(api.ServiceRequest{VirtualService: site("front", at("172.30.0.20", 80))})
			return err
		},
		"release of a lease": func() error {
			_, err := w.Detach(context.Background(), api.DetachRequest{Name: "gone"})
			return err
		},
		"lease":            func() error { s.Offer("web", dhcptest.Lease("192.0.2.8/24")); return nil },
		"end of sandboxes": func() error { ended.kill(); return nil },
	} {
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- request() }()
		select {
		case <-refused:
		case <-time.After(place.Timeout):
			t.Fatalf("%s: it does not need the proxy", name)
		}
	}
	open()
	for name, result := range results {
		select {
		case err := <-result:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(place.Timeout):
			t.Fatalf("%s: timeout", name)
		}
	}
	w.until("the ended sandbox is detached", func() bool { return !strings.Contains(w.left(), "pid-"+ended.pid) })
	w.until("the lease is applied", func() bool {
		return strings.Contains(leased.sh(t, "ip -o addr show eth0"), "192.0.2.8/24")
	})
	in(func() error {
		place.Serve(t, func(fn func() error) error { return fn() }, "0.0.0.0:80", place.Hangup)
		return nil
	})
	for _, addr := range []string{"127.0.0.1:8080", "172.30.0.20:80", "127.0.0.1:8090"} {
		w.reaches(addr)
	}
	if got := s.Released(); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("released: %v", got)
	}
	if left := w.left(); strings.Contains(left, "dead") || strings.Contains(left, "removed") {
		t.Errorf("the attachments are %s", left)
	}
	if links := w.links(); strings.Contains(links, "fd-dead") || strings.Contains(links, "fd-removed") ||
		strings.Contains(links, "fd-left") {
		t.Errorf("links are left:\n%s", links)
	}
}
