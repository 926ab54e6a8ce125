package sockdiag

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// TestBoundBy expects the sockets that a cgroup and its child have bound, without
// those of other cgroups and of clients.
func TestBoundBy(t *testing.T) {
	ns := kerneltest.Netns(t)
	h := New(ns)
	path := kerneltest.Cgroup(t, kerneltest.CgroupRoot(t))
	in := func(path string, open func() error) {
		kerneltest.InCgroup(t, path, func() {
			if err := ns.Do(open); err != nil {
				t.Error(err)
			}
		})
	}
	listens := func(at string) func() error {
		return func() error {
			l, err := net.Listen("tcp", at)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}
	}
	if all, err := h.BoundBy(path); err != nil || len(all) != 0 {
		t.Errorf("want no bound sockets, got %v, %v", all, err)
	}
	in(path, listens("127.0.0.1:80"))
	in(kerneltest.Cgroup(t, path), func() error { return errors.Join(listens("[::]:81")(), bindOnly(t, 82)) })
	in(path, func() error {
		server, err := net.ListenPacket("udp", "[::1]:53")
		if err != nil {
			return err
		}
		t.Cleanup(func() { server.Close() })
		client, err := net.Dial("udp", "127.0.0.1:9")
		if err == nil {
			t.Cleanup(func() { client.Close() })
		}
		return err
	})
	if err := ns.Do(listens("127.0.0.1:8080")); err != nil {
		t.Fatal(err)
	}
	want := []Bound{
		{model.TCP, netip.MustParseAddrPort("127.0.0.1:80")}, {model.TCP, netip.MustParseAddrPort("[::]:81")},
		{model.TCP, netip.MustParseAddrPort("0.0.0.0:82")}, {model.UDP, netip.MustParseAddrPort("[::1]:53")},
	}
	all, err := h.BoundBy(path)
	byPort := cmpopts.SortSlices(func(a, b Bound) bool { return a.At.Port() < b.At.Port() })
	if diff := cmp.Diff(want, all, byPort,
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("wrong bound sockets (-want +got): %s%v", diff, err)
	}
}

// bindOnly binds a TCP port without listening.
func bindOnly(t *testing.T, port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.Cleanup(func() { unix.Close(fd) })
	return unix.Bind(fd, &unix.SockaddrInet4{Port: port})
}
