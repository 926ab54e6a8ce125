package ebpf

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// packet describes a TCP segment or UDP datagram.
type packet struct {
	src, dst netip.AddrPort
	udp      bool
	flags    uint8 // of TCP
	seq, ack uint32
	payload  []byte
	options  bool // of IPv4: a router alert
	noSum    bool // of UDP: no checksum
	mac      net.HardwareAddr
}

// The flags of the TCP header.
const (
	fin = 1 << iota
	syn
	rst
	psh
	ack
)

// clientMAC is the sender of every frame.
var clientMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}

// ethernetHeader returns the header of a frame to the host.
func (p packet) ethernetHeader() *layers.Ethernet {
	h := &layers.Ethernet{SrcMAC: clientMAC, DstMAC: hostMAC, EthernetType: layers.EthernetTypeIPv4}
	if p.mac != nil {
		h.DstMAC = p.mac
	}
	if p.src.Addr().Is6() {
		h.EthernetType = layers.EthernetTypeIPv6
	}
	return h
}

// proto returns the protocol's number.
func (p packet) proto() layers.IPProtocol {
	if p.udp {
		return layers.IPProtocolUDP
	}
	return layers.IPProtocolTCP
}

// v4 and v6 return the network header in front of a protocol.
func (p packet) v4(next layers.IPProtocol) *layers.IPv4 {
	h := &layers.IPv4{Version: 4, TTL: 64, Id: 4711, Protocol: next, SrcIP: p.src.Addr().AsSlice(),
		DstIP: p.dst.Addr().AsSlice()}
	if p.options {
		h.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	}
	return h
}

func (p packet) v6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next, SrcIP: p.src.Addr().AsSlice(),
		DstIP: p.dst.Addr().AsSlice()}
}

// network returns the network header as bytes, in front of a body.
func (p packet) network(next layers.IPProtocol, body []byte) []byte {
	if p.src.Addr().Is6() {
		return serialize(p.ethernetHeader(), p.v6(next), gopacket.Payload(body))
	}
	return serialize(p.ethernetHeader(), p.v4(next), gopacket.Payload(body))
}

// transport returns the transport header and the payload.
func (p packet) transport() []byte {
	if p.udp {
		h := &layers.UDP{SrcPort: layers.UDPPort(p.src.Port()), DstPort: layers.UDPPort(p.dst.Port())}
		p.sumOver(h.SetNetworkLayerForChecksum)
		b := serialize(h, gopacket.Payload(p.payload))
		if p.noSum {
			b[6], b[7] = 0, 0
		}
		return b
	}
	h := &layers.TCP{SrcPort: layers.TCPPort(p.src.Port()), DstPort: layers.TCPPort(p.dst.Port()), Seq: p.seq,
		Ack: p.ack,
		FIN: p.flags&fin != 0, SYN: p.flags&syn != 0, RST: p.flags&rst != 0, PSH: p.flags&psh != 0,
		ACK: p.flags&ack != 0, Window: 512}
	p.sumOver(h.SetNetworkLayerForChecksum)
	return serialize(h, gopacket.Payload(p.payload))
}

func (p packet) sumOver(set func(gopacket.NetworkLayer) error) {
	if p.src.Addr().Is6() {
		_ = set(p.v6(p.proto())) // fails for other layers only
	} else {
		_ = set(p.v4(p.proto()))
	}
}

// frame returns the packet in an Ethernet frame.
func (p packet) frame() []byte { return p.network(p.proto(), p.transport()) }

// fragments splits the packet into fragments with at most size bytes of the transport
// header and payload. The size must be a multiple of 8.
func (p packet) fragments(size int) [][]byte {
	var all [][]byte
	whole := p.transport()
	for at := 0; at < len(whole); at += size {
		end := min(at+size, len(whole))
		all = append(all, p.fragment(whole[at:end], at, end < len(whole)))
	}
	return all
}

// fragment returns the fragment with a piece of the transport header and payload, and
// the piece's offset in bytes.
func (p packet) fragment(piece []byte, at int, more bool) []byte {
	if p.src.Addr().Is6() {
		head := []byte{byte(p.proto()), 0, 0, 0, 0, 0, 0x47, 0x11}
		binary.BigEndian.PutUint16(head[2:], uint16(at))
		if more {
			head[3] |= 1
		}
		return p.network(layers.IPProtocolIPv6Fragment, append(head, piece...))
	}
	h := p.v4(p.proto())
	h.FragOffset = uint16(at / 8)
	if more {
		h.Flags = layers.IPv4MoreFragments
	}
	return serialize(p.ethernetHeader(), h, gopacket.Payload(piece))
}

// answer returns the packet in the opposite direction.
func (p packet) answer() packet {
	p.src, p.dst = p.dst, p.src
	p.seq, p.ack = p.ack, p.seq+1
	return p
}

// icmpError returns an error from an address about the packet in a frame. The error
// quotes the given number of the packet's first bytes.
func icmpError(from netip.Addr, about []byte, quoted int) []byte {
	src, _ := ends(about)
	p := packet{src: netip.AddrPortFrom(from, 0), dst: src}
	body := gopacket.Payload(about[ethernet:min(len(about), ethernet+quoted)])
	if from.Is4() {
		h := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable,
			layers.ICMPv4CodeFragmentationNeeded), Seq: 1400}
		return p.network(layers.IPProtocolICMPv4, serialize(h, body))
	}
	h := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypePacketTooBig, 0)}
	_ = h.SetNetworkLayerForChecksum(p.v6(layers.IPProtocolICMPv6)) // fails for other layers only
	return p.network(layers.IPProtocolICMPv6, serialize(h, gopacket.Payload(append([]byte{0, 0, 5, 0}, body...))))
}

// tagged returns the frame with a VLAN tag.
func tagged(frame []byte) []byte {
	return append(append(append([]byte{}, frame[:12]...), 0x81, 0, 0, 7), frame[12:]...)
}

func serialize(all ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		all...); err != nil {
		panic(err) // a mistake in the test
	}
	return buf.Bytes()
}
