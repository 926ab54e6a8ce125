package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"fairlead/internal/kernel/counter"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TrackedFlow is an entry of conntrack whose destination was translated.
type TrackedFlow struct {
	Flow
	// Traffic counts the flow's traffic; all zero if net.netfilter.nf_conntrack_acct
	// is off.
	counter.Traffic
}

// The attributes of conntrack's messages (linux/netfilter/nfnetlink_conntrack.h).
const (
	ctGet                              = 1
	ctTupleOrig, ctTupleReply          = 1, 2
	ctStatus                           = 3
	ctProtoInfo, ctInfoTCP, ctTCPState = 4, 1, 1
	ctCountersOrig, ctCountersReply    = 9, 10
	ctStatusMask                       = 26
	ctTupleIP, ctTupleProto            = 1, 2
	ctIPv4Src, ctIPv4Dst               = 1, 2
	ctIPv6Src, ctIPv6Dst               = 3, 4
	ctProtoNum, ctProtoSrc, ctProtoDst = 1, 2, 3
	ctPackets, ctBytes                 = 1, 2
	// stateEstablished and stateTimeWait are states of enum tcp_conntrack in
	// linux/netfilter/nf_conntrack_tcp.h. A connection in a state between them is
	// open at one end at least. In a later state (CLOSE) it is not.
	stateEstablished, stateTimeWait = 3, 7
	// statusDNAT is IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
	statusDNAT = 1 << 5
)

// Tracked calls fn for each entry of conntrack whose destination was
// translated, by Fairlead or another program. Since Linux 5.15 the kernel filters
// the entries.
func (h *Reader) Tracked(fn func(TrackedFlow)) error {
	if fill, ok := h.Fill(); !ok || fill.Entries == 0 {
		return nil
	}
	conn, err := nlutil.Open(h.ns, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open conntrack: %w", err)
	}
	defer conn.Close()
	// A struct nfgenmsg for both families.
	body := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}
	filter, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: ctStatus, Data: []byte{0, 0, 0, statusDNAT}},
		{Type: ctStatusMask, Data: []byte{0, 0, 0, statusDNAT}},
	})
	if err != nil {
		return fmt.Errorf("list conntrack: %w", err)
	}
	list, err := conn.Dump(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, append(body, filter...))
	if err != nil {
		return fmt.Errorf("list conntrack: %w", err)
	}
	for _, m := range list {
		if f, ok := decodeTracked(m[len(body):]); ok {
			fn(f)
		}
	}
	return nil
}

// decodeTracked decodes an entry. ok says that it is TCP or UDP and its destination
// was translated.
func decodeTracked(message []byte) (f TrackedFlow, ok bool) {
	d, err := netlink.NewAttributeDecoder(message)
	if err != nil {
		return f, false
	}
	d.ByteOrder = binary.BigEndian
	var status uint32
	var orig, reply tuple
	for d.Next() {
		switch d.Type() {
		case ctTupleOrig:
			d.Nested(orig.decode)
		case ctTupleReply:
			d.Nested(reply.decode)
		case ctStatus:
			status = d.Uint32()
		case ctProtoInfo:
			d.Nested(f.decodeState)
		case ctCountersOrig:
			d.Nested(func(n *netlink.AttributeDecoder) error { return decodeAccount(n, &f.Packets.In, &f.Bytes.In) })
		case ctCountersReply:
			d.Nested(func(n *netlink.AttributeDecoder) error { return decodeAccount(n, &f.Packets.Out, &f.Bytes.Out) })
		}
	}
	switch orig.proto {
	case unix.IPPROTO_TCP:
		f.Proto = model.TCP
	case unix.IPPROTO_UDP:
		f.Proto = model.UDP
	}
	f.Client = netip.AddrPortFrom(orig.src, orig.sport)
	f.Host = netip.AddrPortFrom(orig.dst, orig.dport)
	f.Target = netip.AddrPortFrom(reply.src, reply.sport)
	return f, f.Proto != "" && status&statusDNAT != 0 && d.Err() == nil
}

// decodeState decodes the state of a TCP connection and sets f.Over.
func (f *TrackedFlow) decodeState(d *netlink.AttributeDecoder) error {
	for d.Next() {
		switch d.Type() {
		case ctInfoTCP: // the nested attribute has the same number
			d.Nested(func(tcp *netlink.AttributeDecoder) error {
				for tcp.Next() {
					if tcp.Type() == ctTCPState {
						f.Over = tcp.Uint8() >= stateTimeWait
					}
				}
				return tcp.Err()
			})
		}
	}
	return d.Err()
}

// tuple is one direction of a flow.
type tuple struct {
	proto        uint8
	src, dst     netip.Addr
	sport, dport uint16
}

func (t *tuple) decode(d *netlink.AttributeDecoder) error {
	for d.Next() {
		switch d.Type() {
		case ctTupleIP:
			d.Nested(t.decodeAddresses)
		case ctTupleProto:
			d.Nested(t.decodePorts)
		}
	}
	return d.Err()
}

func (t *tuple) decodeAddresses(d *netlink.AttributeDecoder) error {
	for d.Next() {
		switch addr, _ := netip.AddrFromSlice(d.Bytes()); d.Type() {
		case ctIPv4Src, ctIPv6Src:
			t.src = addr
		case ctIPv4Dst, ctIPv6Dst:
			t.dst = addr
		}
	}
	return d.Err()
}

func (t *tuple) decodePorts(d *netlink.AttributeDecoder) error {
	for d.Next() {
		switch d.Type() {
		case ctProtoNum:
			t.proto = d.Uint8()
		case ctProtoSrc:
			t.sport = d.Uint16()
		case ctProtoDst:
			t.dport = d.Uint16()
		}
	}
	return d.Err()
}

func decodeAccount(d *netlink.AttributeDecoder, packets, bytes *uint64) error {
	for d.Next() {
		switch d.Type() {
		case ctPackets:
			*packets = d.Uint64()
		case ctBytes:
			*bytes = d.Uint64()
		}
	}
	return d.Err()
}

// Fill returns the number of entries in the host's conntrack table and
// their maximum; false if the kernel has no conntrack table.
func (h *Reader) Fill() (fill counter.Fill, ok bool) {
	err := h.ns.Do(func() error {
		for name, into := range map[string]*uint64{"nf_conntrack_count": &fill.Entries, "nf_conntrack_max": &fill.Max} {
			text, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
			if err == nil {
				*into, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return fill, err == nil
}
