package place

import (
	"regexp"
	"slices"
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
var state = []listing{
	{"printf 'link\\naddr\\nroute\\nroute show table local\\nneigh show nud permanent\\nneigh show proxy\\n' | " +
		"ip -o -d -force -batch - 2>&1", `^Error: Peer netns|^[0-9]*: .* inet6 fe80`,
		`^[0-9]*: |NO-CARRIER,|,LOWER_UP| state [A-Z]*| promiscuity.*|@if[0-9]*| link-netnsid.*| tentative| linkdown`},
	{"ip -6 route", "fe80", " linkdown"},
	{"ip rule; ip -6 rule", "", ""},
	{"bridge fdb", "^33:33:| dev fv[-_].* permanent| dev fv[-_][^ ]* master [^ ]* *$", ""},
	{"nft -s list ruleset", "", ""},
	{"sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv4.conf.all net.bridge net.ipv4.vs 2>/dev/null",
		`send_redirects|^net\.ipv4\.vs\.am_droprate`, ""},
	{"[ ! -e /proc/net/ip_vs ] || cat /proc/net/ip_vs", "", ""},
	// Asked for TCP sockets that neither listen nor are connected, the kernel searches a table of all connections.
	{"ss -Htn state listening; ss -Hun state unconnected", "", ""},
}

// listing is a part of a host's state: what commands print, without the lines that match drop and the text that
// matches erase.
type listing struct{ commands, drop, erase string }

// ordered are the commands whose lines have an order, or are lines of a block.
var ordered = []string{"ip rule; ip -6 rule", "nft -s list ruleset",
	"[ ! -e /proc/net/ip_vs ] || cat /proc/net/ip_vs"}

// vethMAC is the hardware address of a veth link.
var vethMAC = regexp.MustCompile(`^(fv[-_].*)link.ether [0-9a-f:]*`)

// lines returns the lines of the listing from what its commands have printed. The test does this itself, because
// filters of a shell would be as many processes again.
func (l listing) lines(printed string) (lines []string) {
	drop, erase := regexp.MustCompile(l.drop), regexp.MustCompile(l.erase)
	for line := range strings.Lines(printed) {
		line = strings.TrimSuffix(line, "\n")
		if l.drop == "" || !drop.MatchString(line) {
			lines = append(lines, vethMAC.ReplaceAllString(erase.ReplaceAllString(line, ""), "$1"))
		}
	}
	if !slices.Contains(ordered, l.commands) {
		slices.Sort(lines)
	}
	return lines
}

// Snapshot returns a host's state, as far as Fairlead could leave behind something in it.
func Snapshot(t testing.TB, in Place) string {
	t.Helper()
	const end = "-- end of a listing --\n"
	var script strings.Builder
	for _, l := range state {
		script.WriteString(l.commands + "; echo '" + strings.TrimSpace(end) + "'; ")
	}
	var all []string
	for i, printed := range strings.Split(strings.TrimSuffix(shell.Run(t, in, script.String()+"true"), end), end) {
		all = append(all, state[i].lines(printed)...)
	}
	return strings.Join(all, "\n") + "\n"
}

// Unchanged fails the test if a host's state differs from an earlier snapshot.
func Unchanged(t testing.TB, in Place, before string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(Snapshot(t, in), "\n")); diff != "" {
		t.Errorf("the host's state differs from before, was (-), is (+):\n%s", diff)
	}
}
