package plan

import (
	"encoding/hex"
	"fmt"
	"net/netip"
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
	// Local is the address of this host that the tunnels use. If it is not valid, the datagrams to all of its
	// addresses and multicast groups are excluded, which costs a route lookup for each.
	Local netip.Addr
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
	if u.Local.IsValid() {
		name += "-" + hex.EncodeToString(u.Local.AsSlice())
	}
	return name
}

// NoTrackOf returns the object for a table's name. It returns false if the table is
// not Fairlead's.
func NoTrackOf(table string) (u NoTrack, ok bool) {
	number, rest, _ := strings.Cut(strings.TrimPrefix(table, noTrackPrefix), "-")
	port, err := strconv.ParseUint(number, 10, 16)
	rest, u.Both = strings.CutPrefix("-"+rest, bothSuffix)
	address, _ := hex.DecodeString(strings.TrimPrefix(rest, "-"))
	u.Port = uint16(port)
	u.Local, _ = netip.AddrFromSlice(address)
	return u, err == nil && u.Table() == table
}

// Key implements Object.
func (u NoTrack) Key() string { return "table " + u.Table() }

// Add implements Object.
func (u NoTrack) Add() []string { return []string{"nft '" + u.Text() + "'"} }

// Text returns the table as nft(8) takes it. Package kernel compiles it for netlink.
func (u NoTrack) Text() string {
	ports := fmt.Sprintf("udp dport %d", u.Port)
	if u.Both {
		ports = fmt.Sprintf("udp sport %d %s", u.Port, ports)
	}
	forHost := "fib daddr type != unicast"
	switch {
	case u.Local.Is4():
		forHost = "ip daddr " + u.Local.String()
	case u.Local.Is6():
		forHost = "ip6 daddr " + u.Local.String()
	}
	return fmt.Sprintf("table inet %s {"+
		" chain in { type filter hook prerouting priority raw; %s %s notrack comment %s; };"+
		" chain out { type filter hook output priority raw; %s notrack comment %s; }; }", u.Table(), ports, forHost,
		Mark, ports, Mark)
}

// Del implements Object.
func (u NoTrack) Del() []string { return []string{"nft delete table inet " + u.Table()} }
