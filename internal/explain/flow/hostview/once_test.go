package hostview_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/sockdiag"

	"golang.org/x/sys/unix"
)

// TestQuestionsAreAskedOnce: routes and settings that change meanwhile do not change the answers, which belong to one
// moment.
func TestQuestionsAreAskedOnce(t *testing.T) {
	ns := kerneltest.Netns(t)
	h, err := kernel.Open(ns.Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, err := hostview.New(h, hostview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	q := rtnl.RouteQuery{To: netip.MustParseAddr("192.0.2.1")}
	const setting = "net.ipv4.ip_forward"
	_, before := w.Route("", q)
	was := w.Setting("", setting)
	kerneltest.Run(t, ns, "ip", "address", "add", "192.0.2.1/32", "dev", "lo")
	kerneltest.Run(t, ns, "ip", "link", "set", "lo", "up")
	kerneltest.Run(t, ns, "sysctl", "-qw", setting+"=1")
	if _, err := w.Route("", q); before == nil || err == nil || w.Setting("", setting) != was || was != "0" {
		t.Errorf("route: %v, then %v; %s: %q, then %q", before, err, setting, was, w.Setting("", setting))
	}
}

// TestDescriptorsAreReadOncePerProcess: after the first question about a process, a socket is known only by the
// descriptors that the process had then. `fairlead ports` asks about every socket.
func TestDescriptorsAreReadOncePerProcess(t *testing.T) {
	ns := kerneltest.Netns(t)
	h, err := kernel.Open(ns.Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, err := hostview.New(h, hostview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	first, second := listenWithTTL(t, ns.Do, 81, 7), listenWithTTL(t, ns.Do, 82, 9)
	listeners, err := w.Listeners("")
	if err != nil {
		t.Fatal(err)
	}
	ttl := func(port uint16) int {
		i := slices.IndexFunc(listeners, func(l sockdiag.Listener) bool { return l.At.Port() == port })
		if i < 0 {
			t.Fatalf("no listener at port %d: %+v", port, listeners)
		}
		return w.MinTTL(listeners[i], true)
	}
	if got := ttl(81); got != 7 {
		t.Errorf("the minimum TTL of the first socket is %d, want 7", got)
	}
	copied, err := second.File() // the same socket, with another descriptor
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	second.Close()
	if got := ttl(82); got != 0 {
		t.Errorf("the descriptors were read again: the minimum TTL of the second socket is %d", got)
	}
	first.Close()
}

// listenWithTTL listens at a port with IP_MINTTL.
func listenWithTTL(t *testing.T, in func(func() error) error, port, ttl int) *net.TCPListener {
	t.Helper()
	var l *net.TCPListener
	var without net.ListenConfig
	without.SetMultipathTCP(false) // its sockets have no minimum TTL
	err := in(func() error {
		all, err := without.Listen(t.Context(), "tcp4", fmt.Sprint(":", port))
		if err == nil {
			l = all.(*net.TCPListener)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MINTTL, ttl) })
	if failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return l
}
