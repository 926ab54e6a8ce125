package conntrack

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
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
	ctGet                              = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete                           = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
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
	filter, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: ctStatus, Data: []byte{0, 0, 0, statusDNAT}},
		{Type: ctStatusMask, Data: []byte{0, 0, 0, statusDNAT}},
	})
	if err != nil {
		return fmt.Errorf("list conntrack: %w", err)
	}
	conn, err := h.list(filter, func(entry []byte) {
		if f, ok := decodeTracked(entry); ok {
			fn(f)
		}
	})
	if err == nil {
		conn.Close()
	}
	return err
}

// header is a struct nfgenmsg for both families.
var header = []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}

// list calls fn for each entry that passes the kernel's filter: a header with its family, then attributes. It returns
// the connection that it has used.
func (h *Reader) list(filter []byte, fn func(entry []byte)) (*nlutil.Conn, error) {
	conn, err := nlutil.Open(h.ns, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open conntrack: %w", err)
	}
	entries, err := conn.Dump(ctGet, slices.Concat(header, filter))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("list conntrack: %w", err)
	}
	for _, entry := range entries {
		fn(entry)
	}
	return conn, nil
}

// decode decodes an entry. ok says that it is TCP or UDP.
func decode(entry []byte) (f Flow, ok bool) {
	entry = entry[len(header):]
	orig, reply := nlutil.Attribute(entry, ctTupleOrig), nlutil.Attribute(entry, ctTupleReply)
	switch nlutil.Number(orig, ctTupleProto, ctProtoNum) {
	case unix.IPPROTO_TCP:
		f.Proto = model.TCP
	case unix.IPPROTO_UDP:
		f.Proto = model.UDP
	}
	f.Client, f.Host, f.Target = sourceOf(orig), destinationOf(orig), sourceOf(reply)
	state := nlutil.Number(entry, ctProtoInfo, ctInfoTCP, ctTCPState)
	f.Over, f.Open = state >= stateTimeWait, state >= stateEstablished && state < stateTimeWait
	return f, f.Proto != ""
}

// decodeTracked decodes an entry. ok says that it is TCP or UDP and its destination
// was translated.
func decodeTracked(entry []byte) (f TrackedFlow, ok bool) {
	f.Flow, ok = decode(entry)
	entry = entry[len(header):]
	f.Packets.In, f.Bytes.In = account(entry, ctCountersOrig)
	f.Packets.Out, f.Bytes.Out = account(entry, ctCountersReply)
	return f, ok && nlutil.Number(entry, ctStatus)&statusDNAT != 0
}

// sourceOf and destinationOf return an end of one direction of a flow.
func sourceOf(tuple []byte) netip.AddrPort { return endOf(tuple, ctIPv4Src, ctIPv6Src, ctProtoSrc) }

func destinationOf(tuple []byte) netip.AddrPort {
	return endOf(tuple, ctIPv4Dst, ctIPv6Dst, ctProtoDst)
}

func endOf(tuple []byte, v4, v6, port uint16) netip.AddrPort {
	addr, is4 := netip.AddrFromSlice(nlutil.Attribute(tuple, ctTupleIP, v4))
	if !is4 {
		addr, _ = netip.AddrFromSlice(nlutil.Attribute(tuple, ctTupleIP, v6))
	}
	return netip.AddrPortFrom(addr, uint16(nlutil.Number(tuple, ctTupleProto, port)))
}

// account returns the counters of one direction.
func account(message []byte, direction uint16) (packets, bytes uint64) {
	return nlutil.Number(message, direction, ctPackets), nlutil.Number(message, direction, ctBytes)
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
