package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	protocol "github.com/mholt/acmez/v3/acme"
	"github.com/miekg/dns"
)

// dynamicUpdate changes a zone by dynamic updates (RFC 2136), which it signs by a shared
// secret (RFC 8945). It reads lego's variables RFC2136_….
type dynamicUpdate struct {
	server               string
	key, secret, hashing string
}

const recordTTL = 60

func newDynamicUpdate() (operator, error) {
	u := dynamicUpdate{server: Variable("RFC2136_NAMESERVER"), key: Variable("RFC2136_TSIG_KEY"),
		secret: Variable("RFC2136_TSIG_SECRET"), hashing: cmp.Or(Variable("RFC2136_TSIG_ALGORITHM"), dns.HmacSHA1)}
	if u.server == "" {
		return nil, errors.New("set RFC2136_NAMESERVER to the address of the zone's primary name server")
	}
	if (u.key == "") != (u.secret == "") {
		return nil, errors.New("set both RFC2136_TSIG_KEY and RFC2136_TSIG_SECRET, or neither")
	}
	if _, _, err := net.SplitHostPort(u.server); err != nil {
		u.server = net.JoinHostPort(strings.Trim(u.server, "[]"), "53")
	}
	u.key, u.hashing = dns.CanonicalName(u.key), dns.CanonicalName(u.hashing)
	return u, nil
}

func (u dynamicUpdate) add(ctx context.Context, zone, fqdn, value string, _ protocol.Challenge) error {
	return u.update(ctx, zone, fqdn, value, (*dns.Msg).Insert)
}

func (u dynamicUpdate) remove(ctx context.Context, zone, fqdn, value string, _ protocol.Challenge) error {
	return u.update(ctx, zone, fqdn, value, (*dns.Msg).Remove)
}

func (u dynamicUpdate) patience() time.Duration { return 0 }

// update sends one change. Other records of the name stay: a wildcard and its parent have
// their records at the same name.
func (u dynamicUpdate) update(ctx context.Context, zone, fqdn, value string, change func(*dns.Msg, []dns.RR)) error {
	m := new(dns.Msg).SetUpdate(zone)
	change(m, []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: fqdn, Rrtype: dns.TypeTXT, Class: dns.ClassINET,
		Ttl: recordTTL}, Txt: []string{value}}})
	client := &dns.Client{Net: "tcp", Timeout: 10 * time.Second}
	if u.secret != "" {
		client.TsigSecret = map[string]string{u.key: u.secret}
		m.SetTsig(u.key, u.hashing, 300, time.Now().Unix())
	}
	answer, _, err := client.ExchangeContext(ctx, m, u.server)
	if err != nil {
		return fmt.Errorf("update zone %s at %s: %w", zone, u.server, err)
	}
	if answer.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("update zone %s at %s: the server answers %s", zone, u.server, dns.RcodeToString[answer.Rcode])
	}
	return nil
}
