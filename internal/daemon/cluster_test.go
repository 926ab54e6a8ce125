package daemon_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/store"
	"fairlead/test/place"
)

// overlaid returns a network of the cluster with a subnet.
func overlaid(name, subnet string) model.Network {
	return model.Network{Name: name, Driver: model.DriverBridge, Subnets: []model.Subnet{{Prefix: prefix(subnet)}}}
}

// TestClusterObjects sets what a cluster declares. A network that this host cannot have
// keeps nothing else from being applied, and commands cannot change what belongs to the
// cluster.
func TestClusterObjects(t *testing.T) {
	w := newWorld(t).start()
	w.sh("set -e; ip link add eth0 type veth peer name lan; ip link set lan up; ip link set eth0 up; " +
		"ip addr add 192.0.2.1/24 dev eth0")
	own := overlaid("own", "172.30.9.0/24")
	w.network(own)
	other := overlaid("own", "172.30.8.0/24")
	web := overlaid("web", "172.30.7.0/24")
	bad := overlaid("bad", "192.0.2.0/25")
	front := site("front", at("172.30.7.2", 80))
	problems := w.SetCluster([]model.Network{bad, other, web}, []model.VirtualService{front})
	if len(problems) != 2 || !strings.Contains(problems[0], "network bad: subnet 192.0.2.0/25 overlaps") ||
		!strings.Contains(problems[1], "network own: this host has another network") {
		t.Errorf("the problems are %q", problems)
	}
	if n := w.Networks(); len(n) != 2 || n[0].Origin != model.FromCommand || n[1].Origin != model.FromCluster {
		t.Errorf("the networks are %v", n)
	}
	if again := w.SetCluster([]model.Network{web}, []model.VirtualService{front}); len(again) > 0 {
		t.Errorf("the same objects have the problems %q", again)
	}
	for _, err := range []error{
		second(w.CreateNetwork(overlaid("web", "172.30.6.0/24"), false)), second(w.RemoveNetwork("web")),
		second(w.RemoveService("front", false)),
		second(w.SetService(api.ServiceRequest{VirtualService: site("front", at("172.30.7.3", 80))})),
	} {
		if api.CodeOf(err) != api.Conflict || !strings.Contains(err.Error(), "belongs to the cluster") {
			t.Errorf("a command that changes an object of the cluster returns: %v", err)
		}
	}
}

func second(_ api.Result, err error) error { return err }

// verifying is a host whose kernel verifies the programs for services until free is closed.
type verifying struct {
	*kernel.Host
	asked, free chan struct{}
}

// LoadServices implements engine.Inspector.
func (v verifying) LoadServices() (drop func() error, err error) {
	select {
	case v.asked <- struct{}{}:
	default:
	}
	<-v.free
	return v.Host.LoadServices()
}

// TestFirstService adds the first service of a host, of the cluster and of the host alone. While the kernel verifies
// programs, the daemon answers other requests and applies networks.
func TestFirstService(t *testing.T) {
	for name, add := range map[string]func(w *world, v model.VirtualService) error{
		"cluster": func(w *world, v model.VirtualService) error {
			if problems := w.SetCluster(nil, []model.VirtualService{v}); len(problems) > 0 {
				return errors.New(problems[0])
			}
			return nil
		},
		"host": func(w *world, v model.VirtualService) error {
			return second(w.SetService(api.ServiceRequest{VirtualService: v}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			host := verifying{w.host, make(chan struct{}, 1), make(chan struct{})}
			w.wrap = host
			w.start()
			added, answered := make(chan error, 1), make(chan error, 1)
			go func() { added <- add(w, site("front", at("172.30.7.2", 80))) }()
			<-host.asked
			go func() {
				w.Attachments()
				answered <- second(w.CreateNetwork(overlaid("web", "172.30.7.0/24"), false))
			}()
			select {
			case err := <-answered:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(place.Timeout):
				t.Error("the daemon does not answer while the kernel verifies programs")
			}
			close(host.free)
			if err := <-added; err != nil {
				t.Error(err)
			}
		})
	}
}

// loading is a host that counts how often the programs for services are to be loaded.
type loading struct {
	*kernel.Host
	count *atomic.Int64
}

// LoadServices implements engine.Inspector.
func (l loading) LoadServices() (drop func() error, err error) {
	l.count.Add(1)
	return l.Host.LoadServices()
}

// TestRefusedService tries several times to apply a service of the cluster that the host refuses. The kernel verifies
// programs for it only the first time.
func TestRefusedService(t *testing.T) {
	w := newWorld(t)
	host := loading{w.host, new(atomic.Int64)}
	w.wrap = host
	w.start()
	own := site("own", at("172.30.7.2", 80))
	own.Plane = model.PlaneNFT
	w.serve(own)
	before := host.count.Load()
	for i := range 3 {
		problems := w.SetCluster(nil, []model.VirtualService{site("front", at("172.30.7.2", 80))})
		if len(problems) != 1 {
			t.Errorf("the problems are %q, want one", problems)
		}
		if got := host.count.Load() - before; got != 1 {
			t.Errorf("after attempt %d the programs were loaded %d times, want once", i+1, got)
		}
	}
}

// TestClusterNetworkInUse removes a network from the cluster to which a sandbox is attached.
// It stays until the sandbox is detached, or the host leaves the cluster.
func TestClusterNetworkInUse(t *testing.T) {
	w := newWorld(t).start()
	web := overlaid("web", "172.30.7.0/24")
	if problems := w.SetCluster([]model.Network{web}, nil); len(problems) > 0 {
		t.Fatal(problems)
	}
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "web", Sandbox: w.watchedSandbox().pid}})
	problems := w.SetCluster(nil, nil)
	if len(problems) != 1 || !strings.Contains(problems[0], "network web: the cluster no longer has this network") {
		t.Errorf("the problems are %q", problems)
	}
	w.sh("ip route show | grep 172.30.7.0/24")
	if names := w.ClusterAttachments(); len(names) != 1 {
		t.Errorf("the attachments to networks of the cluster are %v", names)
	}
	if err := w.LeaveCluster(); err != nil {
		t.Fatal(err)
	}
	if len(w.Networks()) != 0 || len(w.Attachments()) != 0 {
		t.Errorf("after leaving there are %v and %v", w.Networks(), w.Attachments())
	}
	w.sh("! ip route show | grep 172.30.7")
}

// TestNoCommandOfTheClusterAfterARestart restarts a daemon whose store has a service of the cluster with a command
// as its check, as earlier versions have stored it. The command does not run, and the others are served.
func TestNoCommandOfTheClusterAfterARestart(t *testing.T) {
	w := newWorld(t)
	trace := filepath.Join(t.TempDir(), "trace")
	evil, good := site("evil", at("192.0.2.7", 80)), site("good", at("192.0.2.8", 80))
	touch := func(file string) model.Check {
		return model.Check{Type: model.CheckExec, Command: []string{"/bin/sh", "-c", "touch " + file, "check"},
			Initial: model.InitialDown, Rise: 1}
	}
	evil.Check = touch(trace)
	own := site("own", at("192.0.2.9", 80))
	own.Check = touch(trace + "-own")
	evil.Origin, good.Origin, own.Origin = model.FromCluster, model.FromCluster, model.FromCommand
	for i, v := range []*model.VirtualService{&evil, &good, &own} {
		v.Addresses[0] = netip.AddrFrom4([4]byte{198, 51, 100, byte(10 + i)})
	}
	s, err := store.OpenFile(w.at)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SaveDesired(model.Desired{Services: []model.VirtualService{evil, good, own}}),
		s.Close()); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.stands("own", "192.0.2.9:80 up") // its command has run
	var names []string
	for _, v := range w.Services() {
		names = append(names, v.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"good", "own"}) {
		t.Errorf("the services are %q", names)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("the command of a service of the cluster has run")
	}
}
