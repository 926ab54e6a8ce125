package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// NoTrack excludes the datagrams between tunnels, to a UDP port of this host and to
// the same port of other hosts, from connection tracking, and so from NAT. They
// need no translation, so the lookup of each one's flow is saved. Overlays with the
// same port share it.
//
// It is a separate nft table, so that a host without tunnels pays nothing. The
// table alone does not enable connection tracking. Datagrams to such a port that
// the host forwards for others are still tracked, because they may have to be
// masqueraded.
type NoTrack struct {
	Port uint16
	// Both is true if the source port is also Port, as with WireGuard; VXLAN sends
	// from any port. Then datagrams that other programs of the host send from
	// another port stay tracked, so that their replies are recognised.
	Both bool
}

// noTrackPrefix is the prefix of the tables' names.
const noTrackPrefix = Mark + "-udp-"

// bothSuffix is the suffix if Both is true.
const bothSuffix = "-both"

// Table returns the name of the nft table, of family inet. The name marks it as
// Fairlead's.
func (u NoTrack) Table() string {
	name := noTrackPrefix + strconv.Itoa(int(u.Port))
	if u.Both {
		name += bothSuffix
	}
	return name
}

// NoTrackOf returns the object for a table's name. It returns false if the table is
// not Fairlead's.
func NoTrackOf(table string) (u NoTrack, ok bool) {
	number, both := strings.CutSuffix(strings.TrimPrefix(table, noTrackPrefix), bothSuffix)
	port, err := strconv.ParseUint(number, 10, 16)
	u = NoTrack{Port: uint16(port), Both: both}
	return u, err == nil && u.Table() == table
}

// Key implements Object.
func (u NoTrack) Key() string { return "table " + u.Table() }

// Add implements Object.
func (u NoTrack) Add() []string {
	ports := fmt.Sprintf("udp dport %d", u.Port)
	if u.Both {
		ports = fmt.Sprintf("udp sport %d %s", u.Port, ports)
	}
	return []string{fmt.Sprintf("nft 'table inet %s {"+
		" chain in { type filter hook prerouting priority raw; %s fib daddr type != unicast notrack comment %s; };"+
		" chain out { type filter hook output priority raw; %s notrack comment %s; }; }'", u.Table(), ports, Mark,
		ports, Mark)}
}

// Del implements Object.
func (u NoTrack) Del() []string { return []string{"nft delete table inet " + u.Table()} }
