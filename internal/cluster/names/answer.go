package names

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// ttl is for how many seconds clients may keep an answer. It is as short as Docker's resolver's is
// long: sandboxes move.
const ttl = 5

// maxUDP is the largest answer over UDP, in bytes, for clients that accept more than 512: it fits
// into a packet of IPv6's least MTU (RFC 8200) with its headers.
const maxUDP = 1232

// maxAddresses is how many addresses an answer has at most. Names with more endpoints get a part of
// them, in turn.
const maxAddresses = 64

// answer returns the response to a question that came to the network's address over UDP or TCP.
// turn is another number for each question, so that all endpoints of a name get their share.
func answer(d *Directory, network string, q *dns.Msg, udp bool, turn uint32) *dns.Msg {
	r := new(dns.Msg)
	r.SetReply(q)
	if q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		r.Rcode = dns.RcodeRefused
		return r
	}
	addresses, rcode := find(d, network, q.Question[0].Name)
	r.Rcode, r.Authoritative = rcode, rcode != dns.RcodeRefused
	r.Answer = records(q.Question[0], inTurn(addresses, turn))
	size := dns.MaxMsgSize
	if udp {
		size = dns.MinMsgSize
	}
	if opt := q.IsEdns0(); opt != nil {
		if udp {
			size = min(maxUDP, max(size, int(opt.UDPSize())))
		}
		r.SetEdns0(maxUDP, false)
	}
	r.Truncate(size)
	return r
}

// find returns the addresses of a name as asked: NAME. or NAME.NETWORK. NAME and NETWORK may contain
// dots.
func find(d *Directory, network, asked string) ([]netip.Addr, int) {
	asked = strings.ToLower(strings.TrimSuffix(asked, "."))
	if addresses, known := d.Lookup(network, asked); known {
		return addresses, dns.RcodeSuccess
	}
	name, ours := strings.CutSuffix(asked, "."+strings.ToLower(network))
	if !ours {
		return nil, dns.RcodeRefused // another server may know it
	}
	addresses, known := d.Lookup(network, name)
	if !known {
		return nil, dns.RcodeNameError
	}
	return addresses, dns.RcodeSuccess
}

// inTurn returns at most maxAddresses of the addresses, from another one on for each turn.
func inTurn(addresses []netip.Addr, turn uint32) []netip.Addr {
	if len(addresses) == 0 {
		return nil
	}
	from := int(turn % uint32(len(addresses)))
	turned := append(addresses[from:len(addresses):len(addresses)], addresses[:from]...)
	return turned[:min(len(turned), maxAddresses)]
}

// records returns the resource records for the addresses of the family that was asked for.
func records(q dns.Question, addresses []netip.Addr) (all []dns.RR) {
	head := dns.RR_Header{Name: q.Name, Class: dns.ClassINET, Ttl: ttl}
	for _, a := range addresses {
		switch {
		case a.Is4() && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeANY):
			head.Rrtype = dns.TypeA
			all = append(all, &dns.A{Hdr: head, A: a.AsSlice()})
		case a.Is6() && (q.Qtype == dns.TypeAAAA || q.Qtype == dns.TypeANY):
			head.Rrtype = dns.TypeAAAA
			all = append(all, &dns.AAAA{Hdr: head, AAAA: a.AsSlice()})
		}
	}
	return all
}
