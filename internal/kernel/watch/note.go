package watch

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// message is a netlink message without its header.
type message struct {
	kind, flags uint16
	// port is the port id of the socket that requested the change, or 0 if the
	// kernel does not report it.
	port uint32
	body []byte
}

// nextMessage splits off the first message. If there is none, the message's body is
// nil.
func nextMessage(b []byte) (m message, rest []byte) {
	length := int(binary.NativeEndian.Uint32(b))
	if length < unix.NLMSG_HDRLEN || length > len(b) {
		return m, nil
	}
	m = message{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]),
		binary.NativeEndian.Uint32(b[12:]), b[unix.NLMSG_HDRLEN:length]}
	return m, b[min((length+3)&^3, len(b)):]
}

// noteRoute records an rtnetlink message.
func (w *Watcher) noteRoute(ns int, m message) {
	switch m.kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		w.noteLink(ns, m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		w.noteAddress(ns, m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		w.noteRouteEntry(ns, m)
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC:
		w.noteQdisc(ns, m)
	case unix.RTM_DELTFILTER:
		w.seen.bpf = true // before Linux 6.6, Fairlead's programs are tc filters
	case unix.RTM_DELNSID:
		if id, ok := endedID(m.body); ok {
			w.forgetNamespace(id)
		}
	}
}

// forgetNamespace removes the links of a namespace that no longer exists.
func (w *Watcher) forgetNamespace(ns int) {
	for id := range w.links {
		if id.namespace == ns {
			delete(w.links, id)
		}
	}
}

func (w *Watcher) noteAddress(ns int, m message) {
	if len(m.body) < unix.SizeofIfAddrmsg {
		return
	}
	attrs := m.body[unix.SizeofIfAddrmsg:]
	addr, ok := netip.AddrFromSlice(nlutil.Attribute(attrs, unix.IFA_LOCAL))
	if !ok { // else IFA_ADDRESS is the peer of a point-to-point link
		addr, _ = netip.AddrFromSlice(nlutil.Attribute(attrs, unix.IFA_ADDRESS))
	}
	id := linkID{ns, int(binary.NativeEndian.Uint32(m.body[4:]))}
	at := addressAt{ns, w.nameOf(id), netip.PrefixFrom(addr, int(m.body[1]))}
	w.seen.noteAddress(at, m.kind == unix.RTM_DELADDR)
}

// nameOf returns the name of a link, or "" if the link is not known.
func (w *Watcher) nameOf(id linkID) string {
	if l := w.links[id]; l != nil {
		return l.name
	}
	return ""
}

func (w *Watcher) noteRouteEntry(ns int, m message) {
	if len(m.body) < unix.SizeofRtMsg || m.body[7] != unix.RTN_UNICAST {
		return
	}
	if ns == netns.NoID {
		several := nlutil.Attribute(m.body[unix.SizeofRtMsg:], unix.RTA_MULTIPATH) != nil
		w.seen.multipath = w.seen.multipath || several
	}
	if m.body[4] != unix.RT_TABLE_MAIN {
		return
	}
	to := netip.IPv4Unspecified()
	if m.body[0] == unix.AF_INET6 {
		to = netip.IPv6Unspecified()
	}
	r := routeState{foreign: m.body[5] != plan.RouteProtocol, gone: m.kind == unix.RTM_DELROUTE,
		replaces: m.flags&unix.NLM_F_REPLACE != 0}
	nlutil.Attributes(m.body[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		a, _ := netip.AddrFromSlice(value)
		switch kind {
		case unix.RTA_DST:
			to = a
		case unix.RTA_GATEWAY:
			r.via = a
		case unix.RTA_OIF:
			r.link = w.nameOf(linkID{ns, int(binary.NativeEndian.Uint32(value))})
		}
	})
	w.seen.noteRoute(routeAt{ns, netip.PrefixFrom(to, int(m.body[1]))}, r)
}

func (w *Watcher) noteQdisc(ns int, m message) {
	if len(m.body) < nl.SizeofTcMsg || binary.NativeEndian.Uint32(m.body[12:]) != netlink.HANDLE_ROOT {
		return
	}
	q := qdiscState{handle: binary.NativeEndian.Uint32(m.body[8:]), gone: m.kind == unix.RTM_DELQDISC}
	bucket := nlutil.Attribute(m.body[nl.SizeofTcMsg:], nl.TCA_OPTIONS, nl.TCA_TBF_PARMS)
	if len(bucket) >= nl.SizeofTcTbfQopt {
		q.rate = uint64(nl.DeserializeTcTbfQopt(bucket).Rate.Rate)
	}
	w.seen.noteQdisc(qdiscAt{ns, w.nameOf(linkID{ns, int(binary.NativeEndian.Uint32(m.body[4:]))})}, q)
}

// noteNeighbor records a permanent entry, or a deleted one: for those the kernel
// does not report whether they were permanent.
func (w *Watcher) noteNeighbor(ns int, m message) {
	if len(m.body) < unix.SizeofNdMsg {
		return
	}
	at := neighborAt{link: w.nameOf(linkID{ns, int(binary.NativeEndian.Uint32(m.body[4:]))})}
	now := neighborState{gone: m.kind == unix.RTM_DELNEIGH}
	nlutil.Attributes(m.body[unix.SizeofNdMsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.NDA_LLADDR:
			now.mac = net.HardwareAddr(value).String()
		case unix.NDA_DST:
			now.addr, _ = netip.AddrFromSlice(value)
		}
	})
	if m.body[0] == unix.AF_BRIDGE {
		at.mac = now.mac
	}
	if m.body[0] != unix.AF_BRIDGE || now.mac == plan.Unknown {
		at.addr = now.addr
	}
	w.seen.noteNeighbor(at, now)
}

// notePolicy records that the IPsec policies have changed. The same groups report the
// end of security associations.
func (w *Watcher) notePolicy(_ int, m message) {
	switch m.kind {
	case nl.XFRM_MSG_NEWPOLICY, nl.XFRM_MSG_UPDPOLICY, nl.XFRM_MSG_DELPOLICY, nl.XFRM_MSG_FLUSHPOLICY,
		nl.XFRM_MSG_POLEXPIRE:
		w.seen.policies = true
		w.NoteRules()
	}
}

// The messages of nf_tables begin with a struct nfgenmsg. If a message is about an
// object in a table, its first attribute is the table's name.
const (
	nfgen        = 4
	nfTableName  = 1
	nfMessageGen = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	nfGenPID     = 2
	nfGenProcess = 3
)

// isFilterTable reports whether the table is a filter table of iptables-nft.
func isFilterTable(family byte, name string) bool {
	return name == "filter" && (family == unix.NFPROTO_IPV4 || family == unix.NFPROTO_IPV6)
}

// noteRules records changes that other programs make to Fairlead's tables. The
// kernel ends each transaction with a message that names the process.
func (w *Watcher) noteRules(_ int, m message) {
	if m.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.body) < nfgen || m.port == w.cfg.NFT.Port() {
		return
	}
	if m.kind == nfMessageGen {
		w.NoteRules()
		w.seen.noteAuthor(fmt.Sprintf("%s (process %d)",
			nlutil.Text(m.body[nfgen:], nfGenProcess),
			nlutil.Number(m.body[nfgen:], nfGenPID)))
		return
	}
	table := nlutil.Text(m.body[nfgen:], nfTableName)
	if isFilterTable(m.body[0], table) {
		w.seen.firewall = true
	}
	if m.body[0] != unix.NFPROTO_INET || !strings.HasPrefix(table, plan.Mark) {
		return
	}
	known := []string{plan.Mark, plan.ServicesTable, plan.GuardTable, plan.IPVSTableName, plan.FlowtableName}
	if _, isNoTrack := plan.NoTrackOf(table); isNoTrack || slices.Contains(known, table) {
		w.seen.noteTable(table)
	}
}
