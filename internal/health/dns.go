package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"fairlead/internal/model"
)

// dnsCheck sends a query to a name server, and passes if there is an answer.
type dnsCheck struct {
	question dnsmessage.Question
	record   string
}

// dnsRecords are the types of the library for the names in model.DNSRecords.
var dnsRecords = map[string]dnsmessage.Type{
	"": dnsmessage.TypeA, "A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CNAME": dnsmessage.TypeCNAME,
	"MX": dnsmessage.TypeMX,
	"NS": dnsmessage.TypeNS, "PTR": dnsmessage.TypePTR, "SOA": dnsmessage.TypeSOA, "SRV": dnsmessage.TypeSRV,
	"TXT": dnsmessage.TypeTXT,
}

var dnsType = Type{Name: model.CheckDNS, Settings: []string{"query", "record"}, overlaps: always, checker: newDNS}

func newDNS(c model.Check, _ Means) (Checker, error) {
	record, ok := dnsRecords[strings.ToUpper(c.Record)]
	if !ok {
		return nil, fmt.Errorf("record %q: want %s", c.Record, strings.Join(model.DNSRecords, ", "))
	}
	name, err := dnsmessage.NewName(strings.TrimSuffix(c.Query, ".") + ".")
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", c.Query, err)
	}
	d := dnsCheck{question: dnsmessage.Question{Name: name, Type: record, Class: dnsmessage.ClassINET},
		record: strings.TrimPrefix(record.String(), "Type")}
	_, err = d.pack(0)
	return d, err
}

func (d dnsCheck) pack(id uint16) ([]byte, error) {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{d.question}}
	return m.Pack()
}

// Check implements Checker.
func (d dnsCheck) Check(ctx context.Context, at Target) Result {
	conn, err := open(ctx, at, "udp")
	if err != nil {
		return broken(ctx, "connect", err)
	}
	defer conn.Close()
	id := uint16(rand.Uint32())
	question, err := d.pack(id)
	if err != nil {
		return failed("%v", err)
	}
	if _, err := conn.Write(question); err != nil {
		return broken(ctx, "send", err)
	}
	datagram := make([]byte, 4096)
	for others := range mostDatagrams {
		n, err := conn.Read(datagram)
		if err != nil {
			return unanswered(ctx, others, err)
		}
		if r, answers := d.judge(datagram[:n], id); answers {
			return r
		}
	}
	return failed("%d datagrams came, and none answers %s %s", mostDatagrams, d.question.Name, d.record)
}

// judge returns the result from a datagram, and whether it answers the query.
func (d dnsCheck) judge(datagram []byte, id uint16) (Result, bool) {
	var p dnsmessage.Parser
	h, err := p.Start(datagram)
	if err != nil || h.ID != id || !h.Response {
		return Result{}, false
	}
	if h.RCode != dnsmessage.RCodeSuccess {
		return failed("%s for %s %s", strings.TrimPrefix(h.RCode.String(), "RCode"), d.question.Name, d.record), true
	}
	switch asked, err := p.AllQuestions(); {
	case err != nil:
		return failed("parse the answer: %v", err), true
	case len(asked) != 1 || !d.asks(asked[0]):
		return Result{}, false
	}
	switch _, err := p.AnswerHeader(); {
	case err == nil, h.Truncated:
		return passed("%s %s is answered", d.question.Name, d.record), true
	case errors.Is(err, dnsmessage.ErrSectionDone):
		return failed("no answer for %s %s", d.question.Name, d.record), true
	default:
		return failed("parse the answer: %v", err), true
	}
}

// asks reports whether q is the check's question. A server may change the case of
// names (RFC 4343).
func (d dnsCheck) asks(q dnsmessage.Question) bool {
	return q.Type == d.question.Type && q.Class == d.question.Class &&
		strings.EqualFold(q.Name.String(), d.question.Name.String())
}
