package kernel

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/plan"
)

func TestNoTrackMatchesItsText(t *testing.T) {
	for name, u := range map[string]plan.NoTrack{"a port": {Port: 4789}, "both ports": {Port: 51820, Both: true},
		"an address":        {Port: 4789, Local: netip.MustParseAddr("192.0.2.1")},
		"an IPv6 address":   {Port: 4789, Local: netip.MustParseAddr("2001:db8::1")},
		"ports and address": {Port: 51820, Both: true, Local: netip.MustParseAddr("192.0.2.1")}} {
		t.Run(name, func(t *testing.T) {
			h := openTestHost(t)
			for range 2 { // setting it twice is harmless
				if err := h.Set(u); err != nil {
					t.Fatal(err)
				}
			}
			got := h.run(t, "nft", "list", "ruleset")
			if err := h.Del(u); err != nil {
				t.Fatal(err)
			}
			if err := h.Del(u); err != nil {
				t.Errorf("deleting an absent table: %v", err)
			}
			h.run(t, "sh", "-c", u.Add()[0])
			if want := h.run(t, "nft", "list", "ruleset"); got != want {
				t.Errorf("the kernel's table is:\n%s\nwant:\n%s", got, want)
			}
			if found, err := h.Observe(plan.Plan{u}, nil); err != nil || !slices.Contains(found, plan.Object(u)) {
				t.Errorf("the table is not observed: %v, %v", found, err)
			}
			h.run(t, "sh", "-c", u.Del()[0])
		})
	}
}

// TestNoTrackIgnoresOtherTables creates tables whose names are similar to
// Fairlead's.
func TestNoTrackIgnoresOtherTables(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "nft",
		"add table inet fairlead-udp-mine; add table inet other; add table ip fairlead-udp-4789; add table inet fairlead-udp-7")
	found, err := h.Observe(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if leftover := plan.Object(plan.NoTrack{Port: 7}); !slices.Contains(found, leftover) {
		t.Errorf("%+v is not found", leftover)
	}
	for _, o := range found {
		if u, is := o.(plan.NoTrack); is && u.Port != 7 {
			t.Errorf("%s is taken for Fairlead's", u.Table())
		}
	}
}

// TestNoTrackDoesNotStartTracking sends a datagram on a host that has no other
// rules.
func TestNoTrackDoesNotStartTracking(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "ip", "link", "set", "lo", "up")
	if err := h.Set(plan.NoTrack{Port: 4789}); err != nil {
		t.Fatal(err)
	}
	tracked := func() string {
		if err := h.Do(func() error {
			conn, err := net.Dial("udp", "127.0.0.1:4790")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte("anyone?"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(h.run(t, "sysctl", "-n", "net.netfilter.nf_conntrack_count"))
	}
	if n := tracked(); n != "0" {
		t.Errorf("%s flows are tracked", n)
	}
	h.run(t, "nft",
		"add table inet t; add chain inet t c { type filter hook output priority 0; }; add rule inet t c ct state new")
	if n := tracked(); n == "0" {
		t.Error("no flow is tracked even with a rule that needs conntrack")
	}
}
