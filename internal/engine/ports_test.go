package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/engine"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

func startProxy(t testing.TB, w *topology.World) func(context.Context) (engine.Proxy, error) {
	return func(context.Context) (engine.Proxy, error) {
		return proxy.Start(t.Context(), child.Place{Netns: w.Server().Netns})
	}
}

// TestTakenPortNamesItsOwnerAndChangesNothing binds a port with each kind of
// socket, and publishes a range that includes it.
func TestTakenPortNamesItsOwnerAndChangesNothing(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	before := snapshot(t, w)
	for _, c := range []struct {
		holder    string
		proto     model.Proto
		listening bool
		hostAddr  string // of the publish; empty means any
		free      bool
	}{
		{"0.0.0.0:8080", model.TCP, true, "", false},
		{"[::]:8080", model.TCP, true, "", false},
		{"198.51.100.2:8080", model.TCP, true, "", false},
		{"[2001:db8:1::2]:8080", model.TCP, true, "", false},
		{"[::1]:8080", model.TCP, true, "", false},
		{"127.0.0.1:8080", model.TCP, true, "0.0.0.0", false},
		{"0.0.0.0:8080", model.TCP, true, "127.0.0.1", false},
		{"[::1]:8080", model.TCP, true, "0.0.0.0", true},
		{"127.0.0.1:8080", model.TCP, true, "198.51.100.2", true},
		{"0.0.0.0:8080", model.TCP, false, "", false},
		{"[2001:db8:1::2]:8080", model.TCP, false, "::", false},
		{"198.51.100.2:8080", model.TCP, false, "198.51.100.2", false},
		{"0.0.0.0:8080", model.UDP, false, "", false},
		{"[::]:8080", model.UDP, false, "", false},
		{"198.51.100.2:8080", model.UDP, false, "198.51.100.2", false},
		{"[::1]:8080", model.UDP, false, "::1", false},
		{"127.0.0.1:8080", model.UDP, false, "::", true},
	} {
		t.Run(fmt.Sprintf("%s listening=%v %s to %s", c.proto, c.listening, c.holder, c.hostAddr), func(t *testing.T) {
			hold(t, w, c.proto, netip.MustParseAddrPort(c.holder), c.listening)
			withHolder := snapshot(t, w)
			for _, via := range modes {
				t.Run(string(via), func(t *testing.T) {
					want := s
					p := model.Publish{Endpoint: "web", Via: via, Proto: c.proto,
						HostPorts: model.PortRange{First: 8000, Last: 8100},
						Ports:     model.PortRange{First: 8000, Last: 8100}}
					if c.hostAddr != "" {
						p.HostAddr = netip.MustParseAddr(c.hostAddr)
					}
					want.Publishes = []model.Publish{p}
					_, err := w.Engine.Set(context.Background(), want)
					if c.free {
						if err != nil {
							t.Errorf("the port is free, but: %v", err)
						}
						mustSet(t, w, model.State{})
					} else if err == nil || !strings.Contains(err.Error(),
						fmt.Sprintf("engine.test (pid %d)", os.Getpid())) {
						t.Errorf("want an error that names this process, got: %v", err)
					}
					unchanged(t, w, withHolder)
				})
			}
		})
	}
	unchanged(t, w, before)
}

// hold binds an address on the server host until the test ends.
func hold(t *testing.T, w *topology.World, proto model.Proto, at netip.AddrPort, listening bool) {
	t.Helper()
	kind := unix.SOCK_STREAM
	if proto == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	var fd int
	if err := w.DoServer(func() (err error) {
		var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(at.Port()), Addr: [4]byte(at.Addr().AsSlice())}
		family := unix.AF_INET
		if at.Addr().Is6() {
			family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
		}
		if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Bind(fd, sa)
		}
		if err == nil && listening {
			err = unix.Listen(fd, 1)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
}

func TestPublishesThatCollideAreRefused(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web", "app")
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	mustSet(t, w, s)
	before := snapshot(t, w)
	publish(&s, "app", model.ViaProxy, model.TCP, 8080, 80)
	_, err := w.Engine.Set(context.Background(), s)
	if err == nil || !strings.Contains(err.Error(), "port taken by endpoint web (8080/tcp -> web:80 via nat)") {
		t.Errorf("want an error that names web, got: %v", err)
	}
	unchanged(t, w, before)
}

// TestReservedPortsCannotBeTaken tries to listen on a port that nat translates.
func TestReservedPortsCannotBeTaken(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	mustSet(t, w, s)
	for _, at := range everywhere(8080) {
		if err := w.DoServer(func() error {
			l, err := net.Listen("tcp", at)
			if err == nil {
				err = l.Close()
			}
			return err
		}); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a program that listens on %s, a port that nat translates, gets: %v", at, err)
		}
	}
}

// TestLinkLocalAddressesOfTheHost: clients of the LAN and the host itself reach a
// published port at fe80::, whatever mode publishes it. Via nat the kernel would
// not forward packets from such a client, so the proxy answers.
func TestLinkLocalAddressesOfTheHost(t *testing.T) {
	for _, via := range []model.Via{model.ViaNAT, model.ViaProxy} {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			s := dual(t, w, model.DriverBridge, "web")
			for _, proto := range protos {
				publish(&s, "web", via, proto, 8080, 80)
			}
			mustSet(t, w, s)
			serve(t, in(w, "web"), "web", ":80")
			onServer(t, w, "ip addr add fe80::a/64 dev "+topology.Wire+" nodad")
			sh(t, w.DoClient, "ip addr add fe80::b/64 dev "+topology.Wire+" nodad")
			to := "[fe80::a%" + topology.Wire + "]:8080"
			for name, from := range map[string]place.Place{"a client of the LAN": w.DoClient, "the host": w.DoServer} {
				for _, proto := range protos {
					if got, err := dial(t, from, proto, to).ask(); err != nil || got != "web" {
						t.Errorf("%s: %s/%s answers %q, %v", name, to, proto, got, err)
					}
				}
			}
		})
	}
}
