package overlay

import (
	"errors"
	"fmt"

	"fairlead/internal/model"
)

// Finding is a problem on the path to another host, and what to do about it.
type Finding struct {
	Problem, Advice string
}

// String returns the problem and the advice on one line.
func (f Finding) String() string { return f.Problem + ": " + f.Advice }

// Findings returns the problems; none if the path is good.
func (r Report) Findings() []Finding {
	t := r.Target
	switch {
	case !r.Replies && r.Unsummed:
		return []Finding{{fmt.Sprintf("only datagrams without a checksum reach %s and return: checksums are corrupted on the path", t.Peer),
			t.offloads("tx-checksum-ip-generic off tx-udp_tnl-csum-segmentation off")}}
	case !r.Replies && r.Corrupted > 0:
		return []Finding{r.corrupted()}
	case !r.Replies && r.Blocked != "":
		return []Finding{{fmt.Sprintf("%s does not answer through the overlay: on this host, %s drops UDP port %d",
			t.Peer, r.Blocked, t.Overlay.WirePort()),
			fmt.Sprintf("accept UDP port %d from and to %s in this host's firewall, e.g. before that rule",
				t.Overlay.WirePort(), t.Remote)}}
	case !r.Replies:
		return []Finding{{fmt.Sprintf("%s does not answer through the overlay", t.Peer),
			fmt.Sprintf("check that the network is up on %s, with the same vni, port%s, and that firewalls between the hosts accept UDP port %d "+
				"in both directions; `ping %s` shows whether the underlay works, and `fairlead doctor` whether a neighbour table is full", t.Remote, t.secret(),
				t.Overlay.WirePort(), t.Remote)}}
	}
	var all []Finding
	if least := min(r.PeerMTU, t.MTU); r.PeerMTU != 0 && r.PeerMTU != t.MTU {
		all = append(all,
			Finding{fmt.Sprintf("the network's mtu is %d on this host and %d on %s: packets larger than %d bytes are lost between their sandboxes",
				t.MTU, r.PeerMTU, t.Remote, least),
				fmt.Sprintf("set the same mtu for the network on all hosts: fairlead network create NAME --mtu %d, with the other options that it has", least)})
	}
	if r.There < t.MTU {
		all = append(all, t.blackHole(r.There, fmt.Sprintf("to %s", t.Peer)))
	}
	if r.Back < r.There {
		all = append(all, t.blackHole(r.Back, fmt.Sprintf("back from %s", t.Peer)))
	}
	if r.Corrupted > 0 || errors.Is(r.Stream, errCorrupted) {
		all = append(all, r.corrupted())
	} else if r.Stream != nil {
		all = append(all,
			Finding{fmt.Sprintf("packets of all sizes reach %s, but a TCP stream does not: %v: TCP segmentation corrupts segments", t.Peer, r.Stream),
				t.offloads("tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off")})
	}
	return all
}

// blackHole is the finding of a hop that drops packets that are too large for it,
// without an ICMP message.
func (t Target) blackHole(fits int, direction string) Finding {
	f := Finding{Problem: fmt.Sprintf("packets of the network's mtu, %d bytes, are lost on the path %s; the largest that passes has %d bytes", t.MTU, direction, fits)}
	if t.allowsTag(fits) {
		fits -= vlanTag
		f.Problem += fmt.Sprintf(" (Linux bridges and veths accept %d bytes more than their mtu, for a VLAN tag)",
			vlanTag)
	}
	f.Advice = fmt.Sprintf("a hop between the hosts carries %d bytes less than their links do: raise its mtu, or set the network's to %d on all hosts", t.MTU-fits, fits)
	return f
}

const (
	// vlanTag is by how many bytes a frame may exceed the MTU of a bridge or a veth
	// that forwards it (__is_skb_forwardable in net/core/dev.c).
	vlanTag = 4
	// outer4 and outer6 are the bytes that VXLAN adds to a packet over IPv4 and IPv6.
	outer4, outer6 = 50, 70
)

// allowsTag reports whether the hop with the given largest size is probably a
// bridge or a veth: its MTU is a usual one only without the allowance. WireGuard
// pads packets, so the hop's MTU is then unknown.
func (t Target) allowsTag(fits int) bool {
	outer := fits + outer6
	if t.Remote.Is4() {
		outer = fits + outer4
	}
	return !t.Overlay.Encrypt && isUsual(outer-vlanTag) && !isUsual(outer)
}

// isUsual reports whether an MTU is common: a multiple of 10, or that of PPPoE or
// AWS.
func isUsual(mtu int) bool { return mtu%10 == 0 || mtu == 1492 || mtu == 9001 }

func (r Report) corrupted() Finding {
	return Finding{fmt.Sprintf("data is corrupted on the path to %s and back", r.Target.Peer),
		r.Target.offloads("tx-checksum-ip-generic off tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off")}
}

// offloads returns the advice to turn off features of the network card.
func (t Target) offloads(features string) string {
	link := t.Underlay
	if link == "" {
		link = "UNDERLAY"
	}
	advice := fmt.Sprintf("turn off offloads, on both hosts: ethtool -K %s %s", link, features)
	if !t.Overlay.Encrypt && t.Overlay.WirePort() == model.PortVXLAN {
		advice += "; or use another port for the overlay: some cards and hypervisors parse packets to port 4789 and reassemble them wrongly"
	}
	return advice
}

func (t Target) secret() string {
	if t.Overlay.Encrypt {
		return " and key file"
	}
	return ""
}
