package health

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/model"

	"golang.org/x/net/dns/dnsmessage"
)

// flood answers the first datagram with many others, until the test ends.
func flood(t *testing.T, datagram func(question []byte) []byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		question := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(question)
			if err != nil {
				return
			}
			answer := datagram(question[:n])
			for {
				if _, err := conn.WriteToUDPAddrPort(answer, from); err != nil {
					break // the client has closed its socket, or the test has ended
				}
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// TestHostileDatagrams checks that a flood of datagrams fails the check, and that only
// a limited number of them is read.
func TestHostileDatagrams(t *testing.T) {
	loop := func(q []byte) []byte { // an answer whose name is a pointer to itself
		answer := append([]byte{}, q...)
		answer[2] |= 1 << 7
		binary.BigEndian.PutUint16(answer[6:], 1)
		at := len(answer)
		return append(append(answer, 0xc0|byte(at>>8), byte(at)), make([]byte, 10)...)
	}
	for name, c := range map[string]struct {
		check  model.Check
		answer func([]byte) []byte
		want   string
	}{
		"empty ones for udp": {model.Check{Type: model.CheckUDP, Send: "ping", Expect: "pong"},
			func([]byte) []byte { return nil }, "100 datagrams came, and none matches"},
		"empty ones for dns": {model.Check{Type: model.CheckDNS, Query: "example.com"},
			func([]byte) []byte { return nil }, "100 datagrams came, and none answers example.com. A"},
		"garbage for dns": {model.Check{Type: model.CheckDNS, Query: "example.com"},
			func([]byte) []byte { return []byte("\xff\x00\xc0\x0c") }, "none answers"},
		"the question for dns": {model.Check{Type: model.CheckDNS, Query: "example.com"},
			func(q []byte) []byte { return q }, "none answers"},
		"answers with another id": {model.Check{Type: model.CheckDNS, Query: "example.com"},
			func(q []byte) []byte { a := loop(q); a[0]++; return a }, "none answers"},
		"answers to another question": {model.Check{Type: model.CheckDNS, Query: "example.com"}, elsewhere,
			"none answers"},
		"answers to no question": {model.Check{Type: model.CheckDNS, Query: "example.com"}, unasked,
			"none answers"},
		"a name that is a loop": {model.Check{Type: model.CheckDNS, Query: "example.com"}, loop,
			"parse the answer"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			expect(t, check(t, c.check, Means{}, Target{Real: flood(t, c.answer)}), false, c.want)
		})
	}
}

// answered returns an answer to the question, after a change.
func answered(q []byte, change func(*dnsmessage.Message)) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(q); err != nil {
		return nil
	}
	m.Response = true
	m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name,
		Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{}}}
	change(&m)
	packed, _ := m.Pack()
	return packed
}

func elsewhere(q []byte) []byte {
	return answered(q, func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("example.org.") })
}

func unasked(q []byte) []byte {
	return answered(q, func(m *dnsmessage.Message) { m.Questions = nil })
}

// TestDNSCase checks that a server may answer with the name in upper or lower case.
func TestDNSCase(t *testing.T) {
	at := datagrams(t, func(q []byte) []byte {
		return answered(q, func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("EXAMPLE.com.") })
	})
	expect(t, check(t, model.Check{Type: model.CheckDNS, Query: "example.com"}, Means{}, Target{Real: at}), true,
		"is answered")
}

// TestHostileAgent checks that a line without an end gives no advice, even if the limit
// cuts off its last word so that it looks like another word.
func TestHostileAgent(t *testing.T) {
	for _, text := range []string{strings.Repeat(" ", 1020) + "downgraded", strings.Repeat("x", 1<<20), "\n\n\n" +
		strings.Repeat("\n", 1<<20), strings.Repeat("drain ", 1<<16)} {
		agent := listen(t, "127.0.0.1:0", func(c net.Conn) { _, _ = io.WriteString(c, text) })
		if r := check(t, model.Check{Agent: agent.Port()}, Means{}, Target{Real: agent}); !r.Void {
			t.Errorf("%.20q…: %+v", text, r)
		}
	}
}

// TestExpiredCertificate checks that an expired certificate fails only checks that
// verify it.
func TestExpiredCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(-time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end,
		DNSNames: []string{"example.com"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(own)
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	at := Target{Real: listen(t, "127.0.0.1:0", func(c net.Conn) {
		s := tls.Server(c, config)
		if s.HandshakeContext(context.Background()) == nil {
			_, _ = s.Read(make([]byte, 1))
		}
	})}
	for _, c := range []struct {
		check  model.Check
		ok     bool
		detail string
	}{
		{model.Check{}, true, "connected"},
		{model.Check{TLSName: "example.com"}, false,
			"TLS: tls: failed to verify certificate: x509: certificate has expired"},
		{model.Check{Expiry: time.Second}, false, "TLS: the certificate expired on " + end.UTC().Format(time.DateOnly)},
	} {
		c.check.Type, c.check.TLS = model.CheckTCP, true
		r := check(t, c.check, Means{Roots: roots}, at)
		expect(t, r, c.ok, c.detail)
		if !c.ok && r.Failure != Insecure {
			t.Errorf("the failure is %s", r.Failure)
		}
	}
}
