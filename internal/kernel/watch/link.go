package watch

import (
	"encoding/binary"
	"hash/fnv"
	"net"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkID identifies a link by the id of its namespace and its index.
type linkID struct{ namespace, index int }

// linkState is the state of a link according to its latest message.
type linkState struct {
	name  string
	up    bool
	mtu   uint32
	mac   string
	alias string
	group uint32
	// master is the index of the bridge that the link is a port of.
	master     int
	masterName string
	kind       string
	loopback   bool
	// filter is true if a bridge has its br_netfilter flags set. hairpin is a
	// bridge port's mode.
	filter, hairpin bool
	// data is a hash of the settings that are specific to the kind of link.
	data uint64
	// gone means that the link was removed. needsCheck means that its objects must
	// be compared although its latest state agrees: the link was down for a moment,
	// its earlier state is unknown, or its kind-specific settings have changed.
	gone, needsCheck bool
}

func (w *Watcher) noteLink(ns int, m message) {
	if len(m.body) < unix.SizeofIfInfomsg {
		return
	}
	id := linkID{ns, int(int32(binary.NativeEndian.Uint32(m.body[4:])))}
	flags, change := binary.NativeEndian.Uint32(m.body[8:]), binary.NativeEndian.Uint32(m.body[12:])
	before := w.links[id]
	if m.body[0] == unix.AF_BRIDGE {
		w.notePort(id, m, before)
		return
	}
	now := &linkState{}
	nlutil.Attributes(m.body[unix.SizeofIfInfomsg:], now.take)
	if now.mtu == 0 && before != nil { // the message has only some attributes, as for a wireless station
		*now = *before
	}
	now.up, now.loopback, now.masterName = flags&unix.IFF_UP != 0, flags&unix.IFF_LOOPBACK != 0, ""
	if now.master != 0 {
		now.masterName = w.nameOf(linkID{ns, now.master})
	}
	const created = ^uint32(0)
	now.needsCheck = before == nil && change != created && ns != netns.NoID ||
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

// notePort records a bridge's message about a port. That a link is no longer a port
// is in the link's own message.
func (w *Watcher) notePort(id linkID, m message, before *linkState) {
	if before == nil || m.kind != unix.RTM_NEWLINK {
		return
	}
	now := *before
	now.needsCheck = false
	now.takePort(nlutil.Attribute(m.body[unix.SizeofIfInfomsg:], unix.IFLA_PROTINFO))
	w.links[id] = &now
	w.seen.noteLink(id, &now)
}

// takePort reads the attributes of a bridge port.
func (s *linkState) takePort(value []byte) {
	if mode := nlutil.Attribute(value, nl.IFLA_BRPORT_MODE); len(mode) > 0 {
		s.hairpin = mode[0] != 0
	}
}

// take reads one attribute of a link.
func (s *linkState) take(kind uint16, value []byte) {
	switch kind {
	case unix.IFLA_IFNAME:
		s.name = unix.ByteSliceToString(value)
	case unix.IFLA_IFALIAS:
		s.alias = unix.ByteSliceToString(value)
	case unix.IFLA_ADDRESS:
		s.mac = net.HardwareAddr(value).String()
	case unix.IFLA_MTU:
		s.mtu = binary.NativeEndian.Uint32(value)
	case unix.IFLA_GROUP:
		s.group = binary.NativeEndian.Uint32(value)
	case unix.IFLA_MASTER:
		s.master = int(binary.NativeEndian.Uint32(value))
	case unix.IFLA_LINKINFO:
		nlutil.Attributes(value, func(kind uint16, value []byte) {
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

// takeData hashes the kind-specific attributes. The attributes of a bridge contain
// timers that change all the time, so only its br_netfilter flags are read.
func (s *linkState) takeData(value []byte) {
	if s.kind != string(plan.Bridge) {
		sum := fnv.New64a()
		sum.Write(value)
		s.data = sum.Sum64()
		return
	}
	s.filter = nlutil.Flag(value, unix.IFLA_BR_NF_CALL_IPTABLES) &&
		nlutil.Flag(value, unix.IFLA_BR_NF_CALL_IP6TABLES)
}
