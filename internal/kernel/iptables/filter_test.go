package iptables

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/plan"
)

// TestChainsAreReadAsWritten writes the chains into the filter table of each kind of iptables, and reads them back: if
// they differed, the daemon would repair them again and again.
func TestChainsAreReadAsWritten(t *testing.T) {
	part := plan.NewPart(plan.Plan{plan.Member{Set: plan.SetLinks, Link: "fv-web"},
		plan.Member{Set: plan.SetLinks, Link: "fl-net"}, plan.Member{Set: plan.SetWithin, Link: "fl-net"}})
	prefix := netip.MustParsePrefix
	routed := []plan.RoutedRange{{From: prefix("172.30.0.0/23"), To: prefix("172.30.0.0/23")},
		{From: prefix("172.30.2.0/24"), To: prefix("172.30.0.0/23"), Remote: true},
		{From: prefix("fd00:30::/64"), To: prefix("fd00:30::/64")}}
	for _, legacy := range []bool{false, true} {
		for _, v4 := range []bool{true, false} {
			ns := kerneltest.Netns(t)
			f := plan.Firewall{V4: v4, Legacy: legacy, Chain: chainDockerUser, Place: 1, Exits: "eth0"}
			drop(t, ns, f)
			reader := rtnl.New(handles.New(ns))
			tables, err := nft.Open(reader)
			if err != nil {
				t.Fatal(err)
			}
			h := New(reader, tables, false)
			for _, o := range plan.FilterChains([]plan.Firewall{f}, []plan.Part{part}, routed) {
				want := o.(plan.FilterChain)
				if err := h.SetFilter(want); err != nil {
					t.Fatal(err)
				}
				if got, err := h.ReadFilter(want); err != nil || got != plan.Object(want) {
					t.Errorf("legacy %t, IPv4 %t: %v, %v, want\n%s", legacy, v4, got, err, want.Rules)
				}
			}
			if err := tables.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// drop creates the filter table of a host on which Docker drops forwarded packets.
func drop(t *testing.T, ns *netns.Namespace, f plan.Firewall) {
	t.Helper()
	program, err := iptables(f, "restore")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(func() error {
		cmd := exec.Command(program)
		cmd.Stdin = strings.NewReader("*filter\n:FORWARD DROP [0:0]\n:DOCKER-USER - [0:0]\n-A FORWARD -j DOCKER-USER\nCOMMIT\n")
		return cmd.Run()
	}); err != nil {
		t.Fatalf("%s: %v", program, err)
	}
}
