package overlay

import (
	"errors"
	"fmt"

	"fairlead/internal/model"
)

// Finding is what is wrong on the way to another host, and what to do.
type Finding struct {
	Problem, Advice string
}

// String writes the finding on two lines.
func (f Finding) String() string { return f.Problem + "\n  " + f.Advice }

// Findings says what is wrong; nothing if all is well.
func (r Report) Findings() []Finding {
	t := r.Target
	switch {
	case !r.Replies && r.Unsummed:
		return []Finding{{fmt.Sprintf("only datagrams without a checksum get to %s and back: checksums are spoilt on the way", t.Peer), t.offloads("tx-checksum-ip-generic off tx-udp_tnl-csum-segmentation off")}}
	case !r.Replies && r.Spoilt > 0:
		return []Finding{r.spoilt()}
	case !r.Replies && r.Blocked != "":
		return []Finding{{fmt.Sprintf("%s does not answer through the overlay: on this host, %s drops its UDP port %d", t.Peer, r.Blocked, t.Overlay.WirePort()),
			fmt.Sprintf("accept UDP port %d from and to %s in this host's firewall, e.g. before that rule", t.Overlay.WirePort(), t.Remote)}}
	case !r.Replies:
		return []Finding{{fmt.Sprintf("%s does not answer through the overlay", t.Peer),
			fmt.Sprintf("see that the network is up on %s, with the same vni, port%s, and that firewalls between let UDP port %d pass both ways; `ping %s` tells whether the underlay does", t.Remote, t.secret(), t.Overlay.WirePort(), t.Remote)}}
	}
	var all []Finding
	if least := min(r.PeerMTU, t.MTU); r.PeerMTU != 0 && r.PeerMTU != t.MTU {
		all = append(all, Finding{fmt.Sprintf("the network's mtu is %d on this host and %d on %s: larger packets than %d bytes get lost between their sandboxes", t.MTU, r.PeerMTU, t.Remote, least),
			fmt.Sprintf("give the network the same mtu on all hosts: fairlead network create NAME --mtu %d, with the other options that it has", least)})
	}
	if r.There < t.MTU {
		all = append(all, t.blackHole(r.There, fmt.Sprintf("to %s", t.Peer)))
	}
	if r.Back < r.There {
		all = append(all, t.blackHole(r.Back, fmt.Sprintf("back from %s", t.Peer)))
	}
	if r.Spoilt > 0 || errors.Is(r.Stream, errSpoilt) {
		all = append(all, r.spoilt())
	} else if r.Stream != nil {
		all = append(all, Finding{fmt.Sprintf("packets of all sizes get to %s, but a stream of TCP does not: %v: segments are spoilt where they are cut up", t.Peer, r.Stream),
			t.offloads("tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off")})
	}
	return all
}

// blackHole is a hop that drops what is too large for it and does not say so.
func (t Target) blackHole(fits int, direction string) Finding {
	f := Finding{Problem: fmt.Sprintf("packets of the network's mtu, %d bytes, get lost on the way %s; the largest that passes has %d", t.MTU, direction, fits)}
	if t.allowsTag(fits) {
		fits -= vlanTag
		f.Problem += fmt.Sprintf(" (a bridge or veth of Linux lets pass %d bytes more than its mtu, for a VLAN tag)", vlanTag)
	}
	f.Advice = fmt.Sprintf("a hop between the hosts carries %d bytes less than their links do: raise its mtu, or set the network's to %d on all hosts", t.MTU-fits, fits)
	return f
}

const (
	// vlanTag is what the kernel lets a frame exceed a link's MTU by, in bytes, where
	// a bridge or a veth passes it on (__is_skb_forwardable in net/core/dev.c).
	vlanTag = 4
	// outer4 and outer6 are what VXLAN adds to a packet over IPv4 and IPv6, in bytes.
	outer4, outer6 = 50, 70
)

// allowsTag reports whether the hop that a size just passes is probably a bridge or
// a veth: its MTU is a usual one only without the allowance. WireGuard pads
// packets, so under it the hop's MTU cannot be told.
func (t Target) allowsTag(fits int) bool {
	outer := fits + outer6
	if t.Remote.Is4() {
		outer = fits + outer4
	}
	return !t.Overlay.Encrypt && isUsual(outer-vlanTag) && !isUsual(outer)
}

// isUsual reports whether links have such an MTU: a round one, that of PPPoE or
// AWS's.
func isUsual(mtu int) bool { return mtu%10 == 0 || mtu == 1492 || mtu == 9001 }

func (r Report) spoilt() Finding {
	return Finding{fmt.Sprintf("other bytes arrive than are sent on the way to %s and back", r.Target.Peer),
		r.Target.offloads("tx-checksum-ip-generic off tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off")}
}

// offloads says how to leave the card out.
func (t Target) offloads(features string) string {
	link := t.Underlay
	if link == "" {
		link = "UNDERLAY"
	}
	advice := fmt.Sprintf("leave the work to the kernel, on both hosts: ethtool -K %s %s", link, features)
	if !t.Overlay.Encrypt && t.Overlay.WirePort() == model.PortVXLAN {
		advice += "; or give the overlay another port: some cards and hypervisors take packets for 4789 apart, and put them together wrongly"
	}
	return advice
}

func (t Target) secret() string {
	if t.Overlay.Encrypt {
		return " and key file"
	}
	return ""
}
