package kernel

import (
	"errors"
	"math"
	"slices"
	"testing"

	"fairlead/internal/kernel/steer"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// guarded leads 80 on every address, 70 on one, 60 on every one while a
// socket holds it, and 50 on one of IPv6.
func guarded() []plan.Lead {
	held := toBox("0.0.0.0", 60, "10.9.0.2")
	for i := range held {
		held[i].Held = true
	}
	return slices.Concat(held,
		toBox("0.0.0.0", 80, "10.9.0.2"), toBox("::", 80, "fd09::2"),
		toBox("10.9.0.1", 70, "10.9.0.2"), toBox("fd09::1", 50, "fd09::2"))
}

func TestLedPortsAreGuarded(t *testing.T) {
	w := newLocalWorld(t, guarded()...)
	for _, s := range []struct {
		at      string
		refused bool
	}{
		{"0.0.0.0:80", true}, {"127.0.0.1:81", true}, {"10.9.0.1:80", true},
		{"[::]:80", true}, {"[::1]:80", true}, {"[fd09::1]:81", true}, {"[::ffff:127.0.0.1]:80", true},
		{"0.0.0.0:79", false}, {"0.0.0.0:82", false}, {"0.0.0.0:0", false}, {"[::]:0", false},
		{"10.9.0.1:70", true}, {"[::ffff:10.9.0.1]:71", true}, {"0.0.0.0:70", true}, {"[::]:70", true},
		{"[::ffff:0.0.0.0]:70", true}, {"127.0.0.1:70", false}, {"[::1]:70", false},
		{"0.0.0.0:60", false}, {"[::]:60", false},
		{"[fd09::1]:50", true}, {"[::]:50", true}, {"[::1]:50", false}, {"0.0.0.0:50", false},
	} {
		for name, kind := range map[string]int{"tcp ": unix.SOCK_STREAM, "udp ": unix.SOCK_DGRAM} {
			t.Run(name+s.at, func(t *testing.T) {
				err := dialer(t, w.ns, kind, s.at).bind(s.at)
				if want := map[bool]error{true: unix.EADDRINUSE}[s.refused]; !errors.Is(err, want) {
					t.Errorf("bind: %v, want %v", err, want)
				}
			})
		}
	}
}

func TestGuardLetsTheProxyAndOtherNamespacesPass(t *testing.T) {
	w := newLocalWorld(t, guarded()...)
	proxy := dialer(t, w.ns, unix.SOCK_STREAM, "0.0.0.0:80")
	if err := unix.SetsockoptInt(proxy.fd, unix.SOL_SOCKET, unix.SO_MARK, plan.BindMark); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]client{"proxy": proxy, "sandbox": dialer(t, w.box, unix.SOCK_STREAM, "0.0.0.0:80")} {
		if err := c.bind("0.0.0.0:80"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGrantedPortsAreNobodyElses(t *testing.T) {
	w := newLocalWorld(t)
	p, err := w.plane()
	if err != nil {
		t.Fatal(err)
	}
	// No cgroup has the greatest number.
	grant := &steer.Lead{Flags: steer.LeadGrant | steer.LeadAny, First: 80, Last: 81, Cgroup: math.MaxUint64}
	if err := p.Table().Apply([]steer.Change{{New: grant}}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]error{"127.0.0.1:80": unix.EADDRINUSE, "0.0.0.0:81": unix.EADDRINUSE, "127.0.0.1:82": nil} {
		if err := dialer(t, w.ns, unix.SOCK_STREAM, at).bind(at); !errors.Is(err, want) {
			t.Errorf("bind %s: %v, want %v", at, err, want)
		}
	}
}
