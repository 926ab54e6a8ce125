package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/kernel/nlutil"

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
		all = append(all, t.event(m.Data))
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
func (t *Tracer) event(data []byte) TraceEvent {
	s := TraceEvent{Family: nftFamilyNames[data[0]]}
	var network, transport []byte
	nlutil.Attributes(data[nfgenLen:], func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_TRACE_TABLE:
			s.Table = unix.ByteSliceToString(value)
		case unix.NFTA_TRACE_CHAIN:
			s.Chain = unix.ByteSliceToString(value)
		case unix.NFTA_TRACE_RULE_HANDLE:
			s.Handle = uint64Of(value)
		case unix.NFTA_TRACE_VERDICT:
			code := nlutil.Attribute(value, unix.NFTA_VERDICT_CODE)
			s.Dropped = len(code) == 4 && uint32Of(code) == nfDrop
		case unix.NFTA_TRACE_POLICY:
			s.Dropped = s.Dropped || uint32Of(value) == nfDrop
		case unix.NFTA_TRACE_IIF:
			s.In = t.links[uint32Of(value)]
		case unix.NFTA_TRACE_OIF:
			s.Out = t.links[uint32Of(value)]
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = value
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = value
		}
	})
	s.Src, s.Dst = packetEnds(network, transport)
	if s.Table == t.name {
		s.Hook, s.Table = s.Chain, ""
	}
	return s
}

// nfDrop is the verdict NF_DROP.
const nfDrop = 0

var nftFamilyNames = map[byte]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}

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
