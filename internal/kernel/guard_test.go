package kernel

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// someGuard returns a guard with addresses of both families and open ports of both
// protocols.
func someGuard() plan.Guard {
	at := func(s string) []model.Frontend { return []model.Frontend{{At: netip.MustParseAddrPort(s)}} }
	return plan.Guard{Addresses: plan.FrontendAddrs(append(at("192.0.2.1:0"), at("[2001:db8::1]:0")...)),
		TCP: plan.FrontendAddrs(at("192.0.2.1:80")), UDP: plan.FrontendAddrs(at("[2001:db8::1]:53"))}
}

// TestGuardIsItsText creates the guard's table from its text and with netlink, and
// compares both.
func TestGuardIsItsText(t *testing.T) {
	h := openTestHost(t)
	g := someGuard()
	list := func() string {
		text := h.run(t, "nft", "-s", "list", "table", "inet", plan.GuardTable)
		return regexp.MustCompile(` comment "fairlead"|meta nfproto ipv[46] `).ReplaceAllString(text, "")
	}
	h.run(t, "sh", "-c", g.Add()[0])
	byText := list()
	if err := h.Set(g); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byText, list()); diff != "" {
		t.Errorf("the table differs (-from text +from netlink):\n%s", diff)
	}
	if is, err := h.nft.ReadGuard(g); err != nil || !plan.Equal(is, g) {
		t.Errorf("readGuard returns %v, %v", is, err)
	}
	if err := h.Del(g); err != nil {
		t.Fatal(err)
	}
	if left := h.run(t, "nft", "list", "ruleset"); left != "" {
		t.Errorf("the ruleset is not empty: %s", left)
	}
}

// TestGuardAcceptsFragments sends a datagram that is larger than the MTU, and a small one, to guarded addresses. Nothing
// tracks connections, so the kernel reassembles those of IPv6 behind the guard's chain. Both arrive at an open port, and
// none at a closed one. The kernel sends no ICMPv6 error about a first fragment, because it cannot verify its checksum.
func TestGuardAcceptsFragments(t *testing.T) {
	w := newLocalWorld(t)
	at := func(s string) []model.Frontend { return []model.Frontend{{At: netip.MustParseAddrPort(s)}} }
	if err := w.Set(plan.Guard{Addresses: plan.FrontendAddrs(append(at("10.9.0.1:0"), at("[fd09::1]:0")...)),
		UDP: plan.FrontendAddrs(append(at("10.9.0.1:53"), at("[fd09::1]:53")...))}); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), 4000)
	for to, open := range map[string]bool{"10.9.0.1:53": true, "[fd09::1]:53": true, "10.9.0.1:54": false,
		"[fd09::1]:54": false} {
		var arrived atomic.Int64
		place.ServeUDP(t, w.ns.Do, to, func(datagram []byte, _ net.Addr) []byte {
			arrived.Add(int64(len(datagram)))
			return datagram[:1]
		})
		err := w.box.Do(func() error {
			c, err := net.Dial("udp", to)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
				return err
			}
			for _, datagram := range [][]byte{large, []byte("y")} {
				if _, err = c.Write(datagram); err != nil {
					return err
				}
			}
			var answer [1]byte
			for answer[0] != 'y' && err == nil { // behind the answer to the large one
				_, err = c.Read(answer[:])
			}
			return err
		})
		want := int64(0)
		if open {
			want = int64(len(large)) + 1
		}
		if open && err != nil || !open && !errors.Is(err, unix.ECONNREFUSED) || arrived.Load() != want {
			t.Errorf("%s (open: %t): %d bytes arrive, want %d; %v", to, open, arrived.Load(), want, err)
		}
	}
}
