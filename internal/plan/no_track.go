package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// NoTrack lets the datagrams between tunnels, to a UDP port of this host and
// to the same of others, pass by connection tracking, and so by NAT: there is
// nothing to translate, and each would have its flow looked up for that.
// Overlays of one port share it.
//
// It is an nft table of its own, so that a host without tunnels pays nothing.
// Such a table alone does not start connection tracking. What the host forwards
// for others to such a port is tracked as ever, or it would not be masqueraded.
type NoTrack struct {
	Port uint16
	// Both says that they are from the port, too, as WireGuard's are; a VXLAN
	// sends from any. Then what another program of the host sends to such a port
	// elsewhere is none of ours, and its replies must be known as such.
	Both bool
}

// noTrackPrefix begins the names of the tables.
const noTrackPrefix = Mark + "-udp-"

// bothSuffix ends them where the port is that of both ends.
const bothSuffix = "-both"

// Table names the nft table, of family inet. The name is its mark.
func (u NoTrack) Table() string {
	name := noTrackPrefix + strconv.Itoa(int(u.Port))
	if u.Both {
		name += bothSuffix
	}
	return name
}

// NoTrackOf returns what the table of that name is for; ok is false where
// the table is not ours.
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
		" chain out { type filter hook output priority raw; %s notrack comment %s; }; }'", u.Table(), ports, Mark, ports, Mark)}
}

// Del implements Object.
func (u NoTrack) Del() []string { return []string{"nft delete table inet " + u.Table()} }
