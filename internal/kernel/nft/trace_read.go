package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Next waits until the deadline for the next events. It returns none if none came,
// or if the kernel has dropped some because the socket's buffer was full.
func (t *Tracer) Next(deadline time.Time) ([]TraceEvent, error) {
	if ready, err := t.ready(deadline); err != nil || !ready {
		return nil, err
	}
	messages, err := t.events.Receive()
	if errors.Is(err, unix.ENOBUFS) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read traces: %w", err)
	}
	var all []TraceEvent
	for _, m := range messages {
		if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE || len(m.Data) < 4 {
			continue
		}
		s, err := t.event(m.Data)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// ready waits until there is something to read or the deadline is over. With a
// read deadline of the socket, data that has arrived would not be read if this
// process was not scheduled until after the deadline.
func (t *Tracer) ready(deadline time.Time) (bool, error) {
	raw, err := t.events.SyscallConn()
	if err != nil {
		return false, fmt.Errorf("read traces: %w", err)
	}
	n := 0
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			left := max(0, time.Until(deadline))
			n, failed = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
			if failed != unix.EINTR {
				return
			}
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return false, fmt.Errorf("read traces: %w", err)
	}
	return n > 0, nil
}

// event decodes a trace message (enum nft_trace_attributes).
func (t *Tracer) event(data []byte) (TraceEvent, error) {
	s := TraceEvent{Family: nftFamilyNames[data[0]]}
	attrs, err := netlink.UnmarshalAttributes(data[4:])
	if err != nil {
		return s, fmt.Errorf("read traces: %w", err)
	}
	var network, transport []byte
	for _, a := range attrs {
		switch a.Type &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER) {
		case unix.NFTA_TRACE_TABLE:
			s.Table = unix.ByteSliceToString(a.Data)
		case unix.NFTA_TRACE_CHAIN:
			s.Chain = unix.ByteSliceToString(a.Data)
		case unix.NFTA_TRACE_RULE_HANDLE:
			s.Handle = binary.BigEndian.Uint64(a.Data)
		case unix.NFTA_TRACE_VERDICT:
			s.Dropped = verdictOf(a.Data) == nfDrop
		case unix.NFTA_TRACE_POLICY:
			s.Dropped = s.Dropped || binary.BigEndian.Uint32(a.Data) == nfDrop
		case unix.NFTA_TRACE_IIF:
			s.In = t.links[binary.BigEndian.Uint32(a.Data)]
		case unix.NFTA_TRACE_OIF:
			s.Out = t.links[binary.BigEndian.Uint32(a.Data)]
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = a.Data
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = a.Data
		}
	}
	s.Src, s.Dst = packetEnds(network, transport)
	if s.Table == t.name {
		s.Hook, s.Table = s.Chain, ""
	}
	return s, nil
}

// nfDrop is the verdict NF_DROP.
const nfDrop = 0

var nftFamilyNames = map[byte]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}

// verdictOf returns the code of a verdict, -1 if there is none.
func verdictOf(data []byte) int64 {
	attrs, err := netlink.UnmarshalAttributes(data)
	for _, a := range attrs {
		if err == nil && a.Type == unix.NFTA_VERDICT_CODE && len(a.Data) == 4 {
			return int64(int32(binary.BigEndian.Uint32(a.Data)))
		}
	}
	return -1
}

// packetEnds returns the source and the destination of a packet. They are invalid
// if the trace message has no network header: only the first message of each chain
// has one.
func packetEnds(network, transport []byte) (src, dst netip.AddrPort) {
	var from, to netip.Addr
	switch {
	case len(network) >= 20 && network[0]>>4 == 4:
		from, to = netip.AddrFrom4([4]byte(network[12:16])), netip.AddrFrom4([4]byte(network[16:20]))
	case len(network) >= 40 && network[0]>>4 == 6:
		from, to = netip.AddrFrom16([16]byte(network[8:24])), netip.AddrFrom16([16]byte(network[24:40]))
	default:
		return src, dst
	}
	var ports [2]uint16
	if len(transport) >= 4 {
		ports = [2]uint16{binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])}
	}
	return netip.AddrPortFrom(from, ports[0]), netip.AddrPortFrom(to, ports[1])
}
