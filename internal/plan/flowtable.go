package plan

import (
	"fmt"

	"fairlead/internal/escape"
)

// FlowtableName is the nft table with the flowtable, and FlowtableLinks its set of links.
const (
	FlowtableName  = Mark + "-flows"
	FlowtableLinks = "links"
)

// FlowtablePriority is the priority of the chain that adds connections to the flowtable:
// after the filter chains of other programs, so that these have accepted the packet.
const FlowtablePriority = 1000

// FlowtableText is the table as nft(8) takes it. Package kernel compiles it for netlink, except for the flowtable.
var FlowtableText = fmt.Sprintf("table inet %s {"+
	" set %s { type ifname; };"+
	" flowtable flows { hook ingress priority filter; };"+
	" chain forward { type filter hook forward priority %d;"+
	" iifname @%[2]s oifname != @%[2]s ct state established flow add @flows comment %[4]s;"+
	" iifname != @%[2]s oifname @%[2]s ct state established flow add @flows comment %[4]s; }; }",
	FlowtableName, FlowtableLinks, FlowtablePriority, Mark)

// Flowtable is a separate nft table with a flowtable. The links of its set are those of
// networks with flowtable. If connection tracking has seen packets in both directions, and
// all FORWARD rules have accepted a packet, the kernel forwards the later packets from
// ingress to the next hop: without route lookups, connection tracking, NAT rules and
// FORWARD rules. Packets with FIN or RST, fragments, packets with IP options, with a TTL
// that ends here, or larger than the MTU are processed as without it.
//
// The links towards other hosts are devices of the flowtable, too. Each change of the
// table's links ends the connections in the flowtable: conntrack has them again, and the
// next packet of each passes all rules. The daemon does the same when another program
// changes rules.
type Flowtable struct{}

// Key implements Object.
func (Flowtable) Key() string { return "table " + FlowtableName }

// Add implements Object.
func (Flowtable) Add() []string {
	return []string{"# the links towards other hosts are devices of the flowtable, too",
		"nft '" + FlowtableText + "'"}
}

// Del implements Object.
func (Flowtable) Del() []string { return []string{"nft delete table inet " + FlowtableName} }

// FlowtableLink adds a link of the host to the flowtable. Flowtable and the link must exist.
type FlowtableLink struct{ Link string }

// Key implements Object.
func (l FlowtableLink) Key() string { return "flowtable " + l.Link }

// Add implements Object.
func (l FlowtableLink) Add() []string { return l.commands("add") }

// Del implements Object.
func (l FlowtableLink) Del() []string { return l.commands("delete") }

func (l FlowtableLink) commands(do string) []string {
	return []string{
		fmt.Sprintf("nft %s flowtable inet %s flows %s", do, FlowtableName,
			escape.Shell("{ devices = { "+l.Link+" }; }")),
		fmt.Sprintf("nft %s element inet %s %s %s", do, FlowtableName, FlowtableLinks, escape.Shell("{ "+l.Link+" }"))}
}

func (l FlowtableLink) base() string { return end("", l.Link) }
