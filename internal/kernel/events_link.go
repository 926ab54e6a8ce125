package kernel

import (
	"hash/fnv"
	"net"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

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
