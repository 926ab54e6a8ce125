package ebpf

import "net/netip"

// view contains the places of a frame's headers, and of those that an ICMP error
// quotes. Its parser shares no code with the programs.
type view struct {
	v6              bool
	l3, l4          int // l4 is 0 where there is no transport header to read
	proto           uint8
	later, fragment bool
	quote           *view
}

// The numbers of the protocols and of IPv6's fragment header.
const (
	protoICMP, protoTCP, protoUDP, protoFragment, protoICMPv6 = 1, 6, 17, 44, 58
)

// viewOf parses the headers at an offset. Returns nil if there are none.
func viewOf(frame []byte, l3 int) *view {
	if len(frame) < l3+20 {
		return nil
	}
	v := &view{l3: l3, v6: frame[l3]>>4 == 6}
	switch {
	case !v.v6:
		v.proto, v.l4 = frame[l3+9], l3+int(frame[l3]&15)*4
		v.fragment, v.later = be(frame[l3+6:])&0x3fff != 0, be(frame[l3+6:])&0x1fff != 0
	case len(frame) < l3+40:
		return nil
	default:
		v.proto, v.l4 = frame[l3+6], l3+40
	}
	if v.v6 && v.proto == protoFragment && len(frame) >= v.l4+8 {
		v.proto, v.fragment, v.later, v.l4 = frame[v.l4], true, be(frame[v.l4+2:])>>3 != 0, v.l4+8
	}
	return v
}

// packetView parses a frame, and the packet that an ICMP error in it quotes.
func packetView(frame []byte) *view {
	v := viewOf(frame, ethernet)
	if v != nil && (v.proto == protoICMP || v.proto == protoICMPv6) && len(frame) > v.l4+8 {
		v.quote = viewOf(frame, v.l4+8)
	}
	return v
}

// addresses returns the source and the destination address of a header.
func (v *view) addresses(frame []byte) (src, dst netip.Addr) {
	at, size := v.l3+12, 4
	if v.v6 {
		at, size = v.l3+8, 16
	}
	src, _ = netip.AddrFromSlice(frame[at : at+size])
	dst, _ = netip.AddrFromSlice(frame[at+size : at+2*size])
	return src, dst
}

// ends returns the source and the destination of a header, with port 0 if the packet
// has no ports.
func (v *view) ends(frame []byte) (src, dst netip.AddrPort) {
	from, to := v.addresses(frame)
	if v.later || v.proto != protoTCP && v.proto != protoUDP {
		return netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
	}
	return netip.AddrPortFrom(from, be(frame[v.l4:])), netip.AddrPortFrom(to, be(frame[v.l4+2:]))
}

// ends returns the source and the destination of a frame.
func ends(frame []byte) (src, dst netip.AddrPort) { return packetView(frame).ends(frame) }

// checksumAt returns the offset of the transport checksum, 0 if the packet has none.
func (v *view) checksumAt() int {
	switch {
	case v.later:
		return 0
	case v.proto == protoTCP:
		return v.l4 + 16
	case v.proto == protoUDP:
		return v.l4 + 6
	}
	return v.l4 + 2 // ICMP
}

// mayChange marks the bytes that a translation may change: addresses,
// ports, checksums.
func (v *view) mayChange(frame []byte) []bool {
	may := make([]bool, len(frame))
	mark := func(from, n int) {
		for i := from; i < from+n && i < len(may); i++ {
			may[i] = true
		}
	}
	for h := v; h != nil; h = h.quote {
		if h.v6 {
			mark(h.l3+8, 32)
		} else {
			mark(h.l3+10, 10)
		}
		if !h.later && h.proto != protoICMP && h.proto != protoICMPv6 {
			mark(h.l4, 4)
		}
	}
	if at := v.checksumAt(); at != 0 {
		mark(at, 2)
	}
	return may
}

// sum adds up bytes in pairs, as the Internet checksum does.
func sum(b []byte) (n uint32) {
	for ; len(b) > 1; b = b[2:] {
		n += uint32(be(b))
	}
	if len(b) == 1 {
		n += uint32(b[0]) << 8
	}
	return n
}

func right(n uint32) bool {
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return n == 0xffff
}

// sums reports whether the checksums of the network header and of the transport are
// valid. It reports false for the transport of fragments and of truncated packets.
func (v *view) sums(frame []byte) (header, transport bool) {
	header = v.v6 || v.l4 <= len(frame) && right(sum(frame[v.l3:v.l4]))
	end := v.l3 + int(be(frame[v.l3+2:]))
	if v.v6 {
		end = v.l3 + 40 + int(be(frame[v.l3+4:]))
	}
	if v.fragment || end > len(frame) || end < v.l4 {
		return header, false
	}
	body := frame[v.l4:end]
	pseudo := sum(frame[v.l3+12 : v.l3+20])
	if v.v6 {
		pseudo = sum(frame[v.l3+8 : v.l3+40])
	}
	if v.proto == protoICMP {
		return header, right(sum(body))
	}
	return header, right(pseudo + uint32(v.proto) + uint32(len(body)) + sum(body))
}
