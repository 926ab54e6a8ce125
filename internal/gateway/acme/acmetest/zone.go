package acmetest

import (
	"errors"
	"net"

	"github.com/miekg/dns"
)

// Zone serves DNS for the zone test., by UDP and TCP, at a free port of 127.0.0.1. The function returns
// the TXT records of a name, which ends with a dot. Zone returns its own address, and a function that
// stops it.
func Zone(records func(name string) []string) (at string, stop func(), err error) {
	l, packets, err := bothProtocols()
	if err != nil {
		return "", nil, err
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetReply(q)
		for _, question := range q.Question {
			head := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET, Ttl: 1}
			switch {
			case question.Qtype == dns.TypeSOA && question.Name == "test.":
				answer.Answer = append(answer.Answer, &dns.SOA{Hdr: head, Ns: "ns.test.", Mbox: "root.test.",
					Minttl: 1})
			case question.Qtype == dns.TypeTXT:
				for _, text := range records(question.Name) {
					answer.Answer = append(answer.Answer, &dns.TXT{Hdr: head, Txt: []string{text}})
				}
			}
		}
		_ = w.WriteMsg(answer) // the client may be gone
	})
	servers := []*dns.Server{{Listener: l, Handler: handler}, {PacketConn: packets, Handler: handler}}
	for _, s := range servers {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }() // it ends by Shutdown
		<-started
	}
	return l.Addr().String(), func() {
		for _, s := range servers {
			_ = s.Shutdown()
		}
	}, nil
}

// bothProtocols opens a port that is free for TCP and UDP.
func bothProtocols() (l net.Listener, packets net.PacketConn, err error) {
	var failed error
	for range 10 {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
		if packets, err = net.ListenPacket("udp", l.Addr().String()); err == nil {
			return l, packets, nil
		}
		failed = errors.Join(failed, err, l.Close())
	}
	return nil, nil, failed
}
