package ebpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// fencedLAN is a host with virtual addresses, and a client on the same link.
type fencedLAN struct {
	host, client *netns.Namespace
	fence        *Fence
	pins         string
}

var fencedAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}

func newFencedLAN(t *testing.T) *fencedLAN {
	t.Helper()
	l := &fencedLAN{host: kerneltest.Netns(t), client: kerneltest.Netns(t), pins: t.TempDir()}
	if err := unix.Mount("bpf", l.pins, "bpf", 0, ""); err != nil {
		t.Fatalf("mount a bpffs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(l.pins, unix.MNT_DETACH) })
	kerneltest.Run(t, l.host, "ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
	kerneltest.Run(t, l.host, "ip", "link", "set", "lan1", "netns",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.client.File().Fd()))
	for _, e := range []struct {
		ns        *netns.Namespace
		link      string
		addresses []string
	}{
		{l.host, "lan0", []string{"192.0.2.1/24", "2001:db8::1/64", "192.0.2.10/32", "2001:db8::10/128"}},
		{l.client, "lan1", []string{"192.0.2.77/24", "2001:db8::77/64"}},
	} {
		for _, a := range e.addresses {
			args := []string{"addr", "add", a, "dev", e.link}
			if strings.Contains(a, ":") {
				args = append(args, "nodad")
			}
			kerneltest.Run(t, e.ns, "ip", args...)
		}
		kerneltest.Run(t, e.ns, "ip", "link", "set", e.link, "up")
	}
	l.open(t)
	return l
}

// open opens the fence as a daemon does, and attaches it.
func (l *fencedLAN) open(t *testing.T) {
	t.Helper()
	err := l.host.Do(func() (err error) {
		l.fence, err = OpenFence(filepath.Join(l.pins, "fence"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.host.Do(l.fence.Remove) })
	l.attach(t)
}

// attach attaches the fence to the host's link.
func (l *fencedLAN) attach(t *testing.T) {
	t.Helper()
	err := l.host.Do(func() error {
		dev, err := netlink.LinkByName("lan0")
		if err != nil {
			return err
		}
		return l.fence.Attach(dev.Attrs().Index)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// answers reports whether the client gets an answer from an address: first to its question
// for the hardware address, if ask is true, then to a segment for a closed port.
func (l *fencedLAN) answers(t *testing.T, a netip.Addr, ask bool) bool {
	t.Helper()
	if ask {
		kerneltest.Run(t, l.client, "ip", "neigh", "flush", "all")
	}
	err := l.client.Do(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(a, 9).String(), 300*time.Millisecond)
		if err == nil {
			c.Close()
		}
		return err
	})
	return errors.Is(err, unix.ECONNREFUSED)
}

// sends reports whether a datagram from an address arrives at the client, and whether the
// client learns the address from a question of the host.
func (l *fencedLAN) sends(t *testing.T, a netip.Addr) (arrives, learnt bool) {
	t.Helper()
	to := "192.0.2.77"
	if a.Is6() {
		to = "2001:db8::77"
	}
	var receiver *net.UDPConn
	err := l.client.Do(func() (err error) {
		receiver, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(to)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	kerneltest.Run(t, l.client, "ip", "neigh", "flush", "all")
	send := func() {
		err = l.host.Do(func() error {
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: a.AsSlice()}, receiver.LocalAddr().(*net.UDPAddr))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("x"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		receiver.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, _, err = receiver.ReadFrom(make([]byte, 8))
		arrives = err == nil
	}
	kerneltest.Run(t, l.host, "ip", "neigh", "flush", "all")
	send()
	learnt = strings.Contains(kerneltest.Run(t, l.client, "ip", "neigh", "show", a.String()), "lladdr")
	mac, err := l.mac()
	if err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, l.host, "ip", "neigh", "replace", to, "lladdr", mac, "dev", "lan0", "nud", "permanent")
	send()
	kerneltest.Run(t, l.host, "ip", "neigh", "del", to, "dev", "lan0")
	return arrives, learnt
}

// mac returns the client's hardware address.
func (l *fencedLAN) mac() (mac string, err error) {
	err = l.client.Do(func() error {
		dev, err := netlink.LinkByName("lan1")
		if err == nil {
			mac = dev.Attrs().HardwareAddr.String()
		}
		return err
	})
	return mac, err
}

// TestFenceClosesByItself checks that a host answers for an address until the deadline and
// not after it, while no process does anything: with tcx, and with the filters of older kernels.
func TestFenceClosesByItself(t *testing.T) {
	t.Run("tcx", closesByItself)
	has := hasTCX
	defer func() { hasTCX = has }()
	hasTCX = func() bool { return false }
	t.Run("filters", closesByItself)
}

func closesByItself(t *testing.T) {
	l := newFencedLAN(t)
	for _, a := range fencedAddresses {
		if !l.answers(t, a, true) {
			t.Fatalf("the host does not answer for %s, which is not fenced", a)
		}
		deadline := Boottime() + 5*time.Second
		if err := l.fence.Set(a, deadline); err != nil {
			t.Fatal(err)
		}
		if !l.answers(t, a, true) && Boottime() < deadline {
			t.Errorf("the host does not answer for %s before its deadline", a)
		}
		if err := l.fence.Set(a, Boottime()); err != nil {
			t.Fatal(err)
		}
		if l.answers(t, a, false) {
			t.Errorf("the host accepts packets for %s after its deadline", a)
		}
		if l.answers(t, a, true) {
			t.Errorf("the host answers for %s after its deadline", a)
		}
	}
	for _, other := range []string{"192.0.2.1", "2001:db8::1"} {
		if !l.answers(t, netip.MustParseAddr(other), true) {
			t.Errorf("the host does not answer for its own address %s", other)
		}
	}
}

// TestFenceAttachesAgain removes the fence from the link as another program does. Attach restores it.
func TestFenceAttachesAgain(t *testing.T) {
	has := hasTCX
	defer func() { hasTCX = has }()
	hasTCX = func() bool { return false }
	l := newFencedLAN(t)
	a := fencedAddresses[0]
	if err := l.fence.Set(a, Boottime()); err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, l.host, "tc", "qdisc", "del", "dev", "lan0", "clsact")
	if !l.answers(t, a, true) {
		t.Fatalf("the host does not answer for %s without the fence", a)
	}
	l.attach(t)
	if l.answers(t, a, true) {
		t.Errorf("the host answers for %s after its deadline", a)
	}
}

// TestFenceStopsPacketsFromAddress checks that the host sends nothing in the name of an
// address whose deadline has passed: no packet, and no question with it as the sender.
func TestFenceStopsPacketsFromAddress(t *testing.T) {
	l := newFencedLAN(t)
	for _, a := range fencedAddresses {
		if arrives, learnt := l.sends(t, a); !arrives || !learnt {
			t.Fatalf("%s is not fenced, but its packets arrive: %v, the client learns it: %v", a, arrives, learnt)
		}
		if err := l.fence.Set(a, Boottime()); err != nil {
			t.Fatal(err)
		}
		if arrives, learnt := l.sends(t, a); arrives || learnt {
			t.Errorf("after the deadline of %s, its packets arrive: %v, the client learns it: %v", a, arrives, learnt)
		}
	}
}

// TestFenceOutlivesProcess checks that the deadlines stay in force when the process is
// gone, that the next one finds them, and that Remove leaves nothing.
func TestFenceOutlivesProcess(t *testing.T) {
	l := newFencedLAN(t)
	a := fencedAddresses[0]
	deadline := Boottime()
	err := errors.Join(l.fence.Set(a, deadline), l.host.Do(l.fence.Close))
	if err != nil {
		t.Fatal(err)
	}
	if l.answers(t, a, true) {
		t.Errorf("the host answers for %s after its deadline, without the process", a)
	}
	l.open(t)
	found, err := l.fence.Deadlines()
	if err != nil || len(found) != 1 || found[a] != deadline {
		t.Errorf("the next process finds the deadlines %v (%v), want %s: %v", found, err, a, deadline)
	}
	if err := l.host.Do(l.fence.Remove); err != nil {
		t.Error(err)
	}
	if !l.answers(t, a, true) {
		t.Errorf("the host does not answer for %s after Remove", a)
	}
	if _, err := os.Stat(string(l.fence.attached.pins)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Remove leaves the pins in %s: %v", string(l.fence.attached.pins), err)
	}
}
