package place

import (
	"strings"
	"testing"

	"fairlead/test/shell"

	"github.com/google/go-cmp/cmp"
)

// state lists everything on a host that Fairlead could leave behind. It leaves out what the kernel
// changes by itself: carrier states, the end of duplicate address detection, link-local addresses,
// multicast groups of IPv6, the hardware address of a veth that is created again, what a bridge has learnt
// about a sandbox's port, and send_redirects, which a WireGuard link turns off for the host. ip cannot name
// a namespace that is just ending, and then it prints an error.
var state = strings.Join([]string{
	"ip -o -d link 2>&1 | sed '/^Error: Peer netns/d; s/^[0-9]*: //; s/NO-CARRIER,//; s/,LOWER_UP//; s/ state [A-Z]*//;" +
		" s/ promiscuity.*//; s/@if[0-9]*//; s/ link-netnsid.*//; /^fv[-_]/s/link.ether [0-9a-f:]*//' | sort",
	"ip -o addr | sed 's/^[0-9]*: //; s/ tentative//' | grep -v fe80 | sort",
	"(ip route; ip route show table local; ip -6 route | grep -v fe80) | sed 's/ linkdown//' | sort",
	"ip rule; ip -6 rule",
	"bridge fdb | sed '/^33:33:/d; / dev fv[-_].* permanent/d; / dev fv[-_][^ ]* master [^ ]* *$/d' | sort",
	"ip neigh show nud permanent | sort",
	"ip neigh show proxy | sort",
	"nft -s list ruleset",
	"sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv4.conf.all | grep -v send_redirects",
	"sysctl net.bridge 2>/dev/null",
	"sysctl net.ipv4.vs 2>/dev/null | grep -v am_droprate",
	"cat /proc/net/ip_vs 2>/dev/null",
	"ss -Hltun | sort",
}, "; ") + "; true"

// Snapshot returns a host's state, as far as Fairlead could leave behind something in it.
func Snapshot(t testing.TB, in Place) string {
	t.Helper()
	return shell.Run(t, in, state)
}

// Unchanged fails the test if a host's state differs from an earlier snapshot.
func Unchanged(t testing.TB, in Place, before string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(Snapshot(t, in), "\n")); diff != "" {
		t.Errorf("the host's state differs from before, was (-), is (+):\n%s", diff)
	}
}
