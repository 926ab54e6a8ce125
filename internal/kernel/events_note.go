package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

var native = binary.NativeEndian

// message is one netlink message, without its header.
type message struct {
	kind, flags uint16
	// port is the socket that asked for the change, where the kernel tells.
	port uint32
	body []byte
}

// nextMessage cuts the first message off; its body is nil where there is none.
func nextMessage(b []byte) (m message, rest []byte) {
	length := int(native.Uint32(b))
	if length < unix.NLMSG_HDRLEN || length > len(b) {
		return m, nil
	}
	m = message{native.Uint16(b[4:]), native.Uint16(b[6:]), native.Uint32(b[12:]), b[unix.NLMSG_HDRLEN:length]}
	return m, b[min((length+3)&^3, len(b)):]
}

// attributes calls fn for each attribute of a message's rest.
func attributes(b []byte, fn func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		length := int(native.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return
		}
		fn(native.Uint16(b[2:])&nl.NLA_TYPE_MASK, b[unix.SizeofNlAttr:length])
		b = b[min((length+3)&^3, len(b)):]
	}
}

// linkID is the index of a link, and the id of its namespace.
type linkID struct{ namespace, index int }

// linkState is what a message says of a link.
type linkState struct {
	name  string
	up    bool
	mtu   uint32
	mac   string
	alias string
	// master is the index of the bridge that it is a port of.
	master     int
	masterName string
	kind       string
	loopback   bool
	// filter is a bridge's own br_netfilter flags, hairpin a port's mode.
	filter, hairpin bool
	// data sums up what else is set of a link of its kind.
	data uint64
	// gone says that it is there no more, and shaken that a moment's state, or
	// one that we have never seen, may have cost it something.
	gone, shaken bool
}

// noteRoute notes a message of route netlink.
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
		w.seen.bpf = true // before Linux 6.6, our programs are filters
	case unix.RTM_DELNSID:
		attributes(m.body[min(rtgen, len(m.body)):], func(kind uint16, value []byte) {
			if kind == netlink.NETNSA_NSID && len(value) >= 4 {
				w.forgetNamespace(int(int32(native.Uint32(value))))
			}
		})
	}
}

// forgetNamespace forgets the links of a namespace that has ended.
func (w *Watcher) forgetNamespace(ns int) {
	for id := range w.links {
		if id.namespace == ns {
			delete(w.links, id)
		}
	}
}

func (w *Watcher) noteLink(ns int, m message) {
	if len(m.body) < unix.SizeofIfInfomsg {
		return
	}
	id := linkID{ns, int(int32(native.Uint32(m.body[4:])))}
	flags, change := native.Uint32(m.body[8:]), native.Uint32(m.body[12:])
	before := w.links[id]
	if m.body[0] == unix.AF_BRIDGE {
		w.notePort(id, m, before)
		return
	}
	now := &linkState{}
	attributes(m.body[unix.SizeofIfInfomsg:], now.take)
	if now.mtu == 0 && before != nil { // only a part is told, as of a station
		*now = *before
	}
	now.up, now.loopback, now.masterName = flags&unix.IFF_UP != 0, flags&unix.IFF_LOOPBACK != 0, ""
	if now.master != 0 {
		now.masterName = w.nameOf(linkID{ns, now.master})
	}
	const created = ^uint32(0)
	now.shaken = before == nil && change != created && ns != NoSandbox ||
		change != created && change&unix.IFF_UP != 0 && !now.up ||
		before != nil && before.data != 0 && before.data != now.data
	if m.kind == unix.RTM_DELLINK {
		delete(w.links, id)
		now.gone = true
	} else {
		w.links[id] = now
	}
	if before != nil && before.name != now.name {
		old := *before
		old.gone = true
		w.seen.noteLink(linkID{ns, -id.index}, &old)
	}
	w.seen.noteLink(id, now)
}

// notePort notes what a bridge says of a port. That it is one no more, the
// link's own message tells.
func (w *Watcher) notePort(id linkID, m message, before *linkState) {
	if before == nil || m.kind != unix.RTM_NEWLINK {
		return
	}
	now := *before
	now.shaken = false
	attributes(m.body[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
		if kind == unix.IFLA_PROTINFO {
			now.takePort(value)
		}
	})
	w.links[id] = &now
	w.seen.noteLink(id, &now)
}

// takePort takes over what a bridge says of its port.
func (s *linkState) takePort(value []byte) {
	attributes(value, func(kind uint16, value []byte) {
		if kind == nl.IFLA_BRPORT_MODE && len(value) > 0 {
			s.hairpin = value[0] != 0
		}
	})
}

// take takes over what an attribute of a link says.
func (s *linkState) take(kind uint16, value []byte) {
	switch kind {
	case unix.IFLA_IFNAME:
		s.name = unix.ByteSliceToString(value)
	case unix.IFLA_IFALIAS:
		s.alias = unix.ByteSliceToString(value)
	case unix.IFLA_ADDRESS:
		s.mac = net.HardwareAddr(value).String()
	case unix.IFLA_MTU:
		s.mtu = native.Uint32(value)
	case unix.IFLA_MASTER:
		s.master = int(native.Uint32(value))
	case unix.IFLA_LINKINFO:
		attributes(value, func(kind uint16, value []byte) {
			switch kind {
			case unix.IFLA_INFO_KIND:
				s.kind = unix.ByteSliceToString(value)
			case unix.IFLA_INFO_DATA:
				s.takeData(value)
			case unix.IFLA_INFO_SLAVE_DATA:
				s.takePort(value)
			}
		})
	}
}

// takeData sums up what is set of a link of its kind. A bridge counts its
// timers there, so only its flags are taken.
func (s *linkState) takeData(value []byte) {
	if s.kind != string(plan.Bridge) {
		sum := fnv.New64a()
		sum.Write(value)
		s.data = sum.Sum64()
		return
	}
	flags := 0
	attributes(value, func(kind uint16, value []byte) {
		if (kind == bridgeCallIptables || kind == bridgeCallIp6tables) && len(value) > 0 && value[0] != 0 {
			flags++
		}
	})
	s.filter = flags == 2
}

func (w *Watcher) noteAddress(ns int, m message) {
	if len(m.body) < unix.SizeofIfAddrmsg {
		return
	}
	var addr, local netip.Addr
	attributes(m.body[unix.SizeofIfAddrmsg:], func(kind uint16, value []byte) {
		a, _ := netip.AddrFromSlice(value)
		switch kind {
		case unix.IFA_ADDRESS:
			addr = a
		case unix.IFA_LOCAL:
			local = a
		}
	})
	if local.IsValid() {
		addr = local // that of a point-to-point link's other end is the other
	}
	id := linkID{ns, int(native.Uint32(m.body[4:]))}
	at := addressAt{ns, w.nameOf(id), netip.PrefixFrom(addr, int(m.body[1]))}
	w.seen.noteAddress(at, m.kind == unix.RTM_DELADDR)
}

// nameOf returns the name of a link, empty where it is not known.
func (w *Watcher) nameOf(id linkID) string {
	if l := w.links[id]; l != nil {
		return l.name
	}
	return ""
}

func (w *Watcher) noteRouteEntry(ns int, m message) {
	if len(m.body) < unix.SizeofRtMsg || m.body[7] != unix.RTN_UNICAST || m.body[4] != unix.RT_TABLE_MAIN {
		return
	}
	to := netip.IPv4Unspecified()
	if m.body[0] == unix.AF_INET6 {
		to = netip.IPv6Unspecified()
	}
	r := routeState{foreign: m.body[5] != plan.RouteProtocol, gone: m.kind == unix.RTM_DELROUTE, replaces: m.flags&unix.NLM_F_REPLACE != 0}
	attributes(m.body[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		a, _ := netip.AddrFromSlice(value)
		switch kind {
		case unix.RTA_DST:
			to = a
		case unix.RTA_GATEWAY:
			r.via = a
		case unix.RTA_OIF:
			r.link = w.nameOf(linkID{ns, int(native.Uint32(value))})
		}
	})
	w.seen.noteRoute(routeAt{ns, netip.PrefixFrom(to, int(m.body[1]))}, r)
}

func (w *Watcher) noteQdisc(ns int, m message) {
	if len(m.body) < nl.SizeofTcMsg || native.Uint32(m.body[12:]) != netlink.HANDLE_ROOT {
		return
	}
	q := qdiscState{handle: native.Uint32(m.body[8:]), gone: m.kind == unix.RTM_DELQDISC}
	attributes(m.body[nl.SizeofTcMsg:], func(kind uint16, value []byte) {
		if kind != nl.TCA_OPTIONS {
			return
		}
		attributes(value, func(kind uint16, value []byte) {
			if kind == nl.TCA_TBF_PARMS && len(value) >= nl.SizeofTcTbfQopt {
				q.rate = uint64(nl.DeserializeTcTbfQopt(value).Rate.Rate)
			}
		})
	})
	w.seen.noteQdisc(qdiscAt{ns, w.nameOf(linkID{ns, int(native.Uint32(m.body[4:]))})}, q)
}

// noteNeighbor notes an entry that was set, and not learnt; or one that has
// gone, of which the kernel does not say what it was.
func (w *Watcher) noteNeighbor(ns int, m message) {
	if len(m.body) < unix.SizeofNdMsg {
		return
	}
	at := neighborAt{link: w.nameOf(linkID{ns, int(native.Uint32(m.body[4:]))})}
	now := neighborState{gone: m.kind == unix.RTM_DELNEIGH}
	attributes(m.body[unix.SizeofNdMsg:], func(kind uint16, value []byte) {
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

// The messages of nf_tables begin with a struct nfgenmsg, and the first
// attribute of all that are about something in a table is the table's name.
const (
	nfgen        = 4
	nfTableName  = 1
	nfMessageGen = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	nfGenPID     = 2
	nfGenProcess = 3
)

// noteRules notes what another than we has changed of a table of ours. The
// kernel ends each transaction by a message that says whose it was.
func (w *Watcher) noteRules(_ int, m message) {
	if m.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.body) < nfgen || m.port == w.host.nftPort {
		return
	}
	if m.kind == nfMessageGen {
		var pid uint32
		var name string
		attributes(m.body[nfgen:], func(kind uint16, value []byte) {
			switch kind {
			case nfGenPID:
				pid = binary.BigEndian.Uint32(value)
			case nfGenProcess:
				name = unix.ByteSliceToString(value)
			}
		})
		w.seen.noteAuthor(fmt.Sprintf("%s (process %d)", name, pid))
		return
	}
	attributes(m.body[nfgen:], func(kind uint16, value []byte) {
		if kind != nfTableName || m.body[0] != unix.NFPROTO_INET || !bytes.HasPrefix(value, []byte(plan.Mark)) {
			return
		}
		table := unix.ByteSliceToString(value)
		if _, udp := plan.UntrackedOf(table); udp || table == plan.Mark {
			w.seen.noteTable(strings.Clone(table))
		}
	})
}
