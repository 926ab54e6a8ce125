package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// workload is a cgroup with bind hooks. The test process itself moves into the
// cgroup whenever it acts for the workload.
type workload struct {
	t    *testing.T
	w    *localWorld
	path string
}

// newWorkload creates a cgroup with the policy, and grants it ports. In a shared world, they end with the test.
func newWorkload(t *testing.T, w *localWorld, unpublished model.Unpublished, grants ...plan.Grant) workload {
	t.Helper()
	g := workload{t, w, kerneltest.Cgroup(t, kerneltest.CgroupRoot(t))}
	w.grant(t, g.path, grants...)
	if w.shared {
		t.Cleanup(func() { w.dismiss(t, g.path, grants...) })
	}
	if err := w.Set(plan.BindHooks{Cgroup: g.path, Unpublished: unpublished}); err != nil {
		t.Fatal(err)
	}
	return g
}

// grant grants ports to a cgroup.
func (w *localWorld) grant(t *testing.T, path string, grants ...plan.Grant) {
	t.Helper()
	var ops []plan.Op
	for _, o := range grants {
		o.Cgroup = path
		ops = append(ops, plan.Op{Object: o})
	}
	if err := w.ebpf.ApplyEBPF(ops); err != nil {
		t.Fatal(err)
	}
}

// own returns grants of the host port and the next one for the container port and
// the next one, over TCP and UDP. If host is empty, they are for every address.
func own(host string, port, own uint16) (grants []plan.Grant) {
	hosts := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	if host != "" {
		hosts = []netip.Addr{netip.MustParseAddr(host)}
	}
	for _, host := range hosts {
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			grants = append(grants, plan.Grant{Proto: proto, Host: host,
				Ports: model.PortRange{First: port, Last: port + 1}, Own: model.PortRange{First: own, Last: own + 1}})
		}
	}
	return grants
}

// do runs fn as a process of the workload, by moving the whole test process.
func (g workload) do(fn func()) {
	g.t.Helper()
	kerneltest.InCgroup(g.t, g.path, fn)
}

// option is a boolean socket option.
type option struct{ level, name int }

var (
	reusePort = option{unix.SOL_SOCKET, unix.SO_REUSEPORT}
	v6only    = option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}
)

// bind opens a socket in the workload and binds it. A TCP socket listens, with
// SO_REUSEADDR as servers set it.
func (g workload) bind(t *testing.T, kind int, at string, options ...option) (c client, err error) {
	t.Helper()
	g.do(func() {
		c = dialer(t, g.w.ns, kind, at)
		if kind == unix.SOCK_STREAM {
			options = append(options, option{unix.SOL_SOCKET, unix.SO_REUSEADDR})
		}
		for _, o := range options {
			if err = unix.SetsockoptInt(c.fd, o.level, o.name, 1); err != nil {
				t.Fatal(err)
			}
		}
		if err = c.bind(at); err == nil && kind == unix.SOCK_STREAM {
			err = unix.Listen(c.fd, 8)
		}
	})
	return c, err
}

// mustBind is bind that fails the test on an error.
func (g workload) mustBind(t *testing.T, kind int, at string, options ...option) client {
	t.Helper()
	c, err := g.bind(t, kind, at, options...)
	if err != nil {
		t.Fatalf("bind %s: %v", at, err)
	}
	return c
}

// connect opens a socket in the workload and connects it.
func (g workload) connect(t *testing.T, kind int, to string) (c client, err error) {
	t.Helper()
	g.do(func() {
		c = dialer(t, g.w.ns, kind, to)
		err = c.connect(to)
	})
	return c, err
}

// name returns what getsockname reports.
func (c client) name(t *testing.T) string {
	t.Helper()
	a, err := unix.Getsockname(c.fd)
	if err != nil {
		t.Fatal(err)
	}
	return text(a)
}

// named returns what getsockname reports to a process of the workload.
func (g workload) named(t *testing.T, c client) (name string) {
	t.Helper()
	g.do(func() { name = c.name(t) })
	return name
}

// stranger dials from outside any workload.
func (w *localWorld) stranger(t *testing.T, kind int, to string) (client, error) {
	t.Helper()
	c := dialer(t, w.ns, kind, to)
	return c, c.connect(to)
}

// meets fails the test unless a message from the connected socket reaches the
// server and the answer comes back. It returns the server's end: for TCP the
// accepted socket.
func (c client) meets(t *testing.T, kind int, server client) client {
	t.Helper()
	if _, err := unix.Write(c.fd, []byte("?")); err != nil {
		t.Fatal(err)
	}
	end := server
	if kind == unix.SOCK_STREAM {
		fd, _, err := unix.Accept(server.fd)
		if err != nil {
			t.Fatalf("no connection arrived at %s: %v", server.name(t), err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		end = client{fd: fd, family: server.family}
	}
	buf := make([]byte, 8)
	_, from, err := unix.Recvfrom(end.fd, buf, 0)
	if err != nil {
		t.Fatalf("no message arrived at %s: %v", server.name(t), err)
	}
	if kind == unix.SOCK_STREAM {
		_, err = unix.Write(end.fd, []byte("!"))
	} else {
		err = unix.Sendto(end.fd, []byte("!"), 0, from)
	}
	if err != nil {
		t.Fatal(err)
	}
	if said, _ := c.answer(t); said != "!" {
		t.Errorf("the answer is %q", said)
	}
	return end
}

// unheard fails the test if a socket listens at the address.
func (w *localWorld) unheard(t *testing.T, kind int, to string) {
	t.Helper()
	c, err := w.stranger(t, kind, to)
	if kind == unix.SOCK_DGRAM && err == nil {
		if _, err = unix.Write(c.fd, []byte("?")); err == nil {
			_, err = unix.Read(c.fd, make([]byte, 8))
		}
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%s: %v, want %v", to, err, unix.ECONNREFUSED)
	}
}

// socketTypes are the socket types with ports, by protocol.
var socketTypes = map[string]int{"tcp": unix.SOCK_STREAM, "udp": unix.SOCK_DGRAM}

// eachKind runs fn for each socket type.
func eachKind(t *testing.T, name string, fn func(t *testing.T, kind int)) {
	for proto, kind := range socketTypes {
		t.Run(fmt.Sprint(proto, " ", name), func(t *testing.T) { fn(t, kind) })
	}
}
