package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// logged is a test that passes on what the daemon logs.
type logged struct {
	testing.TB
	lines chan string
}

// keepLog makes the world keep what its daemons log.
func (w *world) keepLog() logged {
	l := logged{w.TB, make(chan string, 10_000)}
	w.TB = l
	return l
}

// Logf implements testing.TB.
func (l logged) Logf(format string, args ...any) {
	l.Helper()
	l.TB.Logf(format, args...)
	select {
	case l.lines <- fmt.Sprintf(format, args...):
	default: // no test logs as many lines
	}
}

// awaits waits until a line with the text was logged.
func (l logged) awaits(text string) {
	l.Helper()
	timeout := time.After(place.Timeout)
	for {
		select {
		case line := <-l.lines:
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			l.Fatalf("timeout: nothing with %q was logged", text)
		}
	}
}

// lacks fails the test if a line with the text was logged.
func (l logged) lacks(text string) {
	l.Helper()
	for range len(l.lines) {
		if line := <-l.lines; strings.Contains(line, text) {
			l.Errorf("logged: %s", line)
		}
	}
}

// talking is a host whose clients talk with their servers after each step.
type talking struct {
	allOfHost
	conn net.Conn
	err  error
}

// Apply implements engine.Kernel.
func (c *talking) Apply(ops []plan.Op) (int, error) {
	n, err := c.allOfHost.Apply(ops)
	c.talk()
	return n, err
}

// talk sends a byte and awaits the answer, unless that has failed before.
func (c *talking) talk() {
	if c.err != nil {
		return
	}
	c.err = c.conn.SetDeadline(time.Now().Add(place.Timeout))
	if c.err == nil {
		_, c.err = c.conn.Write([]byte("a"))
	}
	if c.err == nil {
		_, c.err = c.conn.Read(make([]byte, 1))
	}
}

// TestRefusedAtStart starts the daemon while another process has one of its ports, and another program's link has the
// name of one of its links. That publish and that attachment have a problem, and all others stay: a TCP connection
// through one of them goes on during the start.
func TestRefusedAtStart(t *testing.T) {
	w := newWorld(t)
	log := w.keepLog()
	w.start()
	w.sh("ip link set lo up; ip addr add 10.0.0.2/32 dev lo")
	w.network(lan)
	broken := to(w.watchedSandbox())
	broken.Name = "broken"
	w.attach(broken)
	shop, other := w.watchedSandbox(), w.watchedSandbox()
	for i, b := range []watchedSandbox{shop, other} {
		w.attach(to(b))
		w.publish(b, []model.Publish{port(uint16(8080+i), 80)})
	}
	w.serve(site("web", model.RealServer{Select: model.Select{Name: "pid-" + shop.pid}, Port: 80, Weight: 1}))
	place.Serve(t, shop.in, "0.0.0.0:80", place.Echo)
	_, conn := w.visit("10.0.0.2:8080")
	links := func() string { return w.sh(carried + "ip -o link | grep -oE '^[0-9]+: fv-pid-[^@]*'") }
	before := links()
	w.stop()
	w.sh("ip link del fv-broken; ip link add fv-broken type bridge")
	host := &talking{allOfHost: w.host, conn: conn}
	w.wrap = host
	w.takePort(":8081")
	if host.talk(); host.err != nil {
		t.Errorf("a connection through the other publish: %v", host.err)
	}
	if after := links(); after != before {
		t.Errorf("the links were, each with its index,\n%s\nand after the start\n%s", before, after)
	}
	for _, v := range w.Attachments() {
		if up := v.Status == api.Up; up == (v.Name == "broken") || up == strings.Contains(v.Problem, "not Fairlead's") {
			t.Errorf("%s is %s: %s", v.Name, v.Status, v.Problem)
		}
		for _, p := range v.Publishes {
			if strings.Contains(p.Problem, "taken") != (p.HostPorts == model.Port(8081)) {
				t.Errorf("a publish of %s is %+v", v.Name, p)
			}
		}
	}
	log.lacks("the proxy has not opened the host ports yet")
}

// TestTakenPortBesideASelector attaches a sandbox that a service selects, with a port that another process has. The
// request fails because of the port.
func TestTakenPortBesideASelector(t *testing.T) {
	w := newWorld(t).start()
	w.network(lan)
	w.serve(site("web", model.RealServer{Select: model.Select{Name: "shop"}, Port: 80, Weight: 1}))
	w.serves(":8080")
	request := to(w.watchedSandbox())
	request.Name, request.Publishes = "shop", published(model.ViaProxy, 8080)
	ctx, cancel := context.WithTimeout(t.Context(), place.Timeout/2) // only a failing test waits for it
	defer cancel()
	if _, err := w.Attach(ctx, request); api.CodeOf(err) != api.PortTaken {
		t.Errorf("attached with a port of another process: %v", err)
	}
}

// TestTakenPortIsOpenedAgain kills the proxy, and takes one of its ports. The port is opened again when it is free.
func TestTakenPortIsOpenedAgain(t *testing.T) {
	w := newWorld(t)
	log := w.keepLog()
	w.countProxies()
	w.start()
	w.sh("ip link set lo up")
	w.network(lan)
	shop := w.watchedSandbox()
	w.attach(to(shop))
	shop.serves(t, "0.0.0.0:80")
	w.publish(shop, published(model.ViaProxy, 8080))
	w.reaches("127.0.0.1:8080")
	if err := unix.Kill(w.proxy, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.awaits("the proxy has ended", w.proxyDone)
	free := w.serves(":8080")
	w.proxyEnded <- struct{}{}
	for range 2 { // the second time, everything was repaired
		log.awaits("reopen the proxy's ports")
	}
	free()
	w.opens("127.0.0.1:8080")
}

// closing is a proxy that reports when it has closed its ports.
type closing struct {
	engine.Proxy
	closed chan struct{}
}

// Set implements engine.Proxy.
func (c closing) Set(ctx context.Context, config proxy.Config) error {
	err := c.Proxy.Set(ctx, config)
	if len(config.Listeners)+len(config.Reservations) == 0 {
		select {
		case c.closed <- struct{}{}:
		default: // the test waits for one
		}
	}
	return err
}

// Applied implements daemon.Meter. After a failed step it waits until the proxy has closed its ports.
func (c closing) Applied(_ time.Duration, err error) {
	if err != nil && !errors.As(err, new(*engine.UnopenedError)) {
		select {
		case <-c.closed:
		case <-time.After(place.Timeout / 10): // it keeps them if they were repaired meanwhile
		}
	}
}

// Healed implements daemon.Meter.
func (closing) Healed(string, int) {}

// deadly is a host whose proxy dies when a link is made the first time.
type deadly struct {
	allOfHost
	link string
	kill func()
	once sync.Once
}

// Apply implements engine.Kernel.
func (d *deadly) Apply(ops []plan.Op) (int, error) {
	for _, op := range ops {
		if l, is := op.Object.(plan.Link); is && l.Name == d.link && !op.Del {
			d.once.Do(d.kill)
		}
	}
	return d.allOfHost.Apply(ops)
}

// TestRollbackOpensPorts makes a request fail while the proxy dies. The ports of others, which the next proxy has
// opened and closed for the request, are opened again.
func TestRollbackOpensPorts(t *testing.T) {
	w := newWorld(t)
	log, closed := w.keepLog(), make(chan struct{}, 1)
	w.countProxies()
	start := w.startProxy
	w.startProxy = func(life context.Context) (engine.Proxy, error) {
		p, err := start(life)
		return closing{p, closed}, err
	}
	w.meter = closing{closed: closed}
	w.wrap = &deadly{allOfHost: w.host, link: "fv-app", kill: func() {
		if err := unix.Kill(w.proxy, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		w.awaits("the proxy has ended", w.proxyDone)
	}}
	w.start()
	w.sh("ip link set lo up; ip link add fv-app type bridge")
	w.network(lan)
	shop := w.watchedSandbox()
	w.attach(to(shop))
	shop.serves(t, "0.0.0.0:80")
	w.publish(shop, published(model.ViaProxy, 8080))
	request := to(w.watchedSandbox())
	request.Name = "app"
	if _, err := w.Attach(t.Context(), request); err == nil || !strings.Contains(err.Error(), "fv-app") {
		t.Errorf("attached with the link of another program: %v", err)
	}
	w.opens("127.0.0.1:8080")
	log.lacks("restore the previous state")
}

// opens waits until a connection to the address succeeds.
func (w *world) opens(addr string) {
	w.Helper()
	dials := func() error { return w.host.Do(func() error { return dial(addr) }) }
	for end := time.Now().Add(place.Timeout); dials() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("timeout: %s is open again", addr)
		}
	}
}
