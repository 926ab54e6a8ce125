package rules

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// header lists the supported fields of a header by their offsets in bytes. Between
// them are fields that are not supported.
type header map[uint32]part

// The headers (RFC 791, RFC 8200, RFC 826, RFC 9293, RFC 792, RFC 4443).
var (
	ipv4 = header{9: {field: Protocol, width: 1}, 12: {field: Source, width: 4}, 16: {field: Destination, width: 4}}
	ipv6 = header{6: {field: Protocol, width: 1}, 8: {field: Source, width: 16}, 24: {field: Destination, width: 16}}
	arp  = header{6: {field: ARPOperation, width: 2}, 14: {field: Source, width: 4}, 24: {field: Destination, width: 4}}
	link = header{0: {field: EtherDestination, width: 6}, 6: {field: EtherSource, width: 6}, 12: {field: EtherType,
		width: 2}}
	// ports are what TCP, UDP and others have in common.
	ports = header{0: {field: SourcePort, width: 2}, 2: {field: Port, width: 2}}
	tcp   = header{0: {field: SourcePort, width: 2}, 2: {field: Port, width: 2}, 13: {field: Flags, width: 1}}
	icmp  = header{0: {field: ICMPType, width: 1}, 1: {field: ICMPCode, width: 1}}
)

// unreadFields are names of fields that are not supported, by header and offset.
var unreadFields = map[string]string{"ip 0": "ip version", "ip 1": "ip dscp", "ip 2": "ip length", "ip 4": "ip id",
	"ip 6": "ip frag-off", "ip 8": "ip ttl", "ip 10": "ip checksum", "ip6 0": "ip6 version", "ip6 4": "ip6 length",
	"ip6 7": "ip6 hoplimit", "tcp 4": "tcp sequence", "tcp 8": "tcp ackseq", "tcp 12": "tcp doff",
	"tcp 14": "tcp window",
	"udp 4":  "udp length", "udp 6": "udp checksum"}

// payload finds out which fields of the packet are loaded. nft joins the loads of
// fields that follow each other.
func (d *decoder) payload(e *expr.Payload) {
	if e.OperationType == expr.PayloadWrite {
		d.other("payload set")
		return
	}
	name, h := d.header(e.Base)
	parts := h.split(name, e.Offset, e.Len)
	r := register{size: int(e.Len)}
	if len(parts) == 1 && parts[0].field != Unread {
		r.field, r.width = parts[0].field, parts[0].width
	} else {
		r.parts = parts
	}
	d.registers[slot(e.DestRegister)] = r
}

// split returns the fields that a load of length bytes covers.
func (h header) split(name string, offset, length uint32) []part {
	var parts []part
	length = min(length, maxLoad)
	for at, end := offset, offset+length; at < end; {
		p, ok := h[at]
		if p.size = min(p.width, int(end-at)); !ok {
			p = part{field: Unread, what: unreadFields[fmt.Sprint(name, " ", at)]}
			if p.what == "" {
				p.what = fmt.Sprintf("@%s,%d", name, 8*at)
			}
			for next := at + 1; ; next++ {
				if _, ok := h[next]; ok || next == end {
					p.size = int(next - at)
					break
				}
			}
		}
		parts = append(parts, p)
		at += uint32(p.size)
	}
	return parts
}

// maxLoad is more bytes than all registers have.
const maxLoad = 128

// header returns a header of the packets that the rule's conditions so far leave,
// and its name in nft. If they leave several, it returns what these have in common.
func (d *decoder) header(base expr.PayloadBase) (string, header) {
	switch base {
	case expr.PayloadBaseLLHeader:
		return "ll", link
	case expr.PayloadBaseNetworkHeader:
		return d.network()
	case expr.PayloadBaseTransportHeader:
		return d.transport()
	}
	return "ih", nil
}

// network returns the header of the network layer. Rules of a family with several
// protocols check the protocol first.
func (d *decoder) network() (string, header) {
	switch d.family {
	case nftables.TableFamilyIPv4:
		return "ip", ipv4
	case nftables.TableFamilyIPv6:
		return "ip6", ipv6
	case nftables.TableFamilyARP:
		return "arp", arp
	}
	kind, _ := d.only(EtherType)
	family, _ := d.only(Family)
	switch {
	case string(kind) == string(big.AppendUint16(nil, unix.ETH_P_IP)),
		string(family) == string([]byte{unix.NFPROTO_IPV4}):
		return "ip", ipv4
	case string(kind) == string(big.AppendUint16(nil, unix.ETH_P_IPV6)),
		string(family) == string([]byte{unix.NFPROTO_IPV6}):
		return "ip6", ipv6
	case string(kind) == string(big.AppendUint16(nil, unix.ETH_P_ARP)):
		return "arp", arp
	}
	return "nh", nil
}

// transport returns the header of the transport layer.
func (d *decoder) transport() (string, header) {
	protocol, ok := d.only(Protocol)
	switch {
	case !ok || len(protocol) != 1:
		return "th", ports
	case protocol[0] == unix.IPPROTO_TCP:
		return "tcp", tcp
	case protocol[0] == unix.IPPROTO_ICMP || protocol[0] == unix.IPPROTO_ICMPV6:
		return "icmp", icmp
	case protocol[0] == unix.IPPROTO_UDP:
		return "udp", ports
	}
	return "th", ports
}

// only returns the single value of a field that the rule's conditions so far leave.
func (d *decoder) only(f Field) ([]byte, bool) {
	for _, c := range d.rule.Conditions {
		if len(c.Fields) == 1 && c.Fields[0] == f && !c.Not && c.Mask == nil && len(c.In) == 1 && len(c.In[0]) == 1 &&
			string(c.In[0][0].First) == string(c.In[0][0].Last) {
			return c.In[0][0].First, true
		}
	}
	return nil, false
}
