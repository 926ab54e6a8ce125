package kernel

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// staying are port mappings to the same endpoints as published. They stay when
// published is removed.
var staying = slices.Concat(toBox("0.0.0.0", 94, "10.9.0.2"), toBox("::", 94, "fd09::2"))

// TestSocketsOfRemovedMappings runs tests that remove published.
func TestSocketsOfRemovedMappings(t *testing.T) {
	newLocalWorld(t, staying...).share(t, []sharing{
		{"LocalSocketsEndWithTheirMapping", testLocalSocketsEndWithTheirMapping},
		{"UnconnectedSocketsDoNotEnd", testUnconnectedSocketsDoNotEnd},
		{"SocketsWithEqualAddressesAllEnd", testSocketsWithEqualAddressesAllEnd},
		{"ManySocketsEnd", testManySocketsEnd},
		{"EndedUDPSocketConnectsAgain", testEndedUDPSocketConnectsAgain},
	})
}

// testLocalSocketsEndWithTheirMapping: the sockets that used the port mappings are closed; all others with the same
// endpoints continue.
func testLocalSocketsEndWithTheirMapping(t *testing.T, w *localWorld) {
	for name, kind := range map[string]int{"tcp": unix.SOCK_STREAM, "udp": unix.SOCK_DGRAM} {
		t.Run(name, func(t *testing.T) {
			w.mapping(t, false, published...)
			var going, others []client
			for _, call := range mappedCalls {
				going = append(going, converse(t, w.ns, kind, call.dial))
			}
			for _, at := range []string{"127.0.0.1:94", "10.9.0.1:95", "[::1]:94", "[::ffff:127.0.0.1]:94",
				"10.9.0.2:8080", "[fd09::2]:8080"} {
				others = append(others, converse(t, w.ns, kind, at))
			}
			w.mapping(t, true, published...)
			for i, c := range going {
				c.hasEnded(t, mappedCalls[i].dial)
			}
			for _, c := range others {
				c.works(t)
			}
		})
	}
}

// testUnconnectedSocketsDoNotEnd: each of their datagrams is translated separately.
func testUnconnectedSocketsDoNotEnd(t *testing.T, w *localWorld) {
	w.mapping(t, false, published...)
	c := dialer(t, w.ns, unix.SOCK_DGRAM, "127.0.0.1:80")
	for _, at := range []string{"127.0.0.1:80", "127.0.0.1:94"} {
		if err := c.sendTo(at); err != nil {
			t.Fatal(err)
		}
		c.answer(t)
		w.mapping(t, true, published...)
	}
}

// testSocketsWithEqualAddressesAllEnd has sockets that differ only in their
// cookies.
func testSocketsWithEqualAddressesAllEnd(t *testing.T, w *localWorld) {
	w.mapping(t, false, published...)
	var all []client
	for range 3 {
		c := dialer(t, w.ns, unix.SOCK_DGRAM, "10.9.0.1:80")
		if err := errors.Join(
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
			c.bind("10.9.0.1:5400"), c.connect("10.9.0.1:80")); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	w.mapping(t, true, published...)
	for i, c := range all {
		c.hasEnded(t, fmt.Sprint("socket ", i))
	}
}

// testManySocketsEnd has more sockets than fit into one netlink message.
func testManySocketsEnd(t *testing.T, w *localWorld) {
	w.mapping(t, false, published...)
	all := make([]client, 800)
	for i := range all {
		all[i] = dialer(t, w.ns, unix.SOCK_DGRAM, "127.0.0.1:80")
		if err := all[i].connect("127.0.0.1:80"); err != nil {
			t.Fatal(err)
		}
	}
	w.mapping(t, true, published...)
	for i, c := range all {
		c.hasEnded(t, fmt.Sprint("socket ", i))
	}
}

// converse connects and reads the first answer.
func converse(t *testing.T, ns *netns.Namespace, kind int, at string) client {
	t.Helper()
	c := dialer(t, ns, kind, at)
	if err := c.connect(at); err != nil {
		t.Fatal(err)
	}
	if kind == unix.SOCK_STREAM {
		c.answer(t)
	} else {
		c.works(t)
	}
	return c
}

// works fails the test unless the socket can send and receives an answer.
func (c client) works(t *testing.T) {
	t.Helper()
	if _, err := unix.Write(c.fd, []byte("?")); err != nil {
		t.Fatal(err)
	}
	c.answer(t)
}

// hasEnded fails the test unless the process gets ECONNABORTED from the socket, for
// which it waits as long as for an answer.
func (c client) hasEnded(t *testing.T, what string) {
	t.Helper()
	var b [64]byte
	if n, err := unix.Read(c.fd, b[:]); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("%s: read %d bytes, %v; want %v", what, n, err, unix.ECONNABORTED)
	}
	if _, err := unix.Write(c.fd, []byte("?")); err == nil {
		t.Errorf("%s can still send", what)
	}
}

// testEndedUDPSocketConnectsAgain removes the endpoint of a connected UDP socket.
// The socket reads ECONNABORTED once and then has no destination until it connects
// again.
func testEndedUDPSocketConnectsAgain(t *testing.T, w *localWorld) {
	w.mapping(t, false, published...)
	c := converse(t, w.ns, unix.SOCK_DGRAM, "127.0.0.1:80")
	w.mapping(t, true, published...)
	c.hasEnded(t, "the socket")
	if _, err := unix.Write(c.fd, []byte("?")); !errors.Is(err, unix.EDESTADDRREQ) {
		t.Errorf("write: %v, want %v", err, unix.EDESTADDRREQ)
	}
	w.mapping(t, false, published...)
	if err := c.connect("127.0.0.1:80"); err != nil {
		t.Fatal(err)
	}
	c.works(t)
	w.mapping(t, true, published...)
}
