package opening_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/opening"
	"fairlead/test/place"
)

// pair returns both ends of a TCP connection. The server's end has a deadline against hanging.
func pair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	client, server = place.Pair(t)
	_ = server.SetDeadline(time.Now().Add(20 * time.Second))
	return client, server
}

// helloOf returns the record that a client of crypto/tls begins with.
func helloOf(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	c, s := net.Pipe()
	defer c.Close()
	go func() { _ = tls.Client(c, config).Handshake() }()
	head := make([]byte, 5)
	if _, err := io.ReadFull(s, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(s, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// divided returns the record as records of size bytes.
func divided(record []byte, size int) []byte {
	var b []byte
	for part := range slices.Chunk(record[5:], size) {
		b = append(b, record[0], record[1], record[2], byte(len(part)>>8), byte(len(part)))
		b = append(b, part...)
	}
	return b
}

func TestHello(t *testing.T) {
	plain := &tls.Config{ServerName: "DB.Example.test", NextProtos: []string{"postgresql", "x"}}
	record := helloOf(t, plain)
	secret := helloOf(t, &tls.Config{ServerName: "secret.test", MinVersion: tls.VersionTLS13,
		EncryptedClientHelloConfigList: echConfigs(t, "public.test")})
	long := helloOf(t, &tls.Config{ServerName: "long.test",
		NextProtos: slices.Repeat([]string{strings.Repeat("p", 250)}, 40)})
	for name, s := range map[string]struct {
		sent   []byte
		step   int
		server string
	}{
		"whole":                        {record, 1 << 20, "db.example.test"},
		"one byte per segment":         {record, 1, "db.example.test"},
		"one byte per record":          {divided(record, 1), 1 << 20, "db.example.test"},
		"records and segments":         {divided(record, 7), 11, "db.example.test"},
		"above the first buffer":       {long, 1000, "long.test"},
		"encrypted, with a public one": {secret, 1 << 20, "public.test"},
		"no server name":               {helloOf(t, &tls.Config{InsecureSkipVerify: true}), 1 << 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			go func() {
				for part := range slices.Chunk(s.sent, s.step) {
					_, _ = client.Write(part) // the test fails by what arrives
				}
			}()
			hello, err := opening.PeekHello(server)
			if err != nil || hello.ServerName != s.server {
				t.Fatalf("%+v, %v, want %s", hello, err, s.server)
			}
			if s.server == "db.example.test" && !slices.Equal(hello.Protocols, plain.NextProtos) {
				t.Errorf("protocols %v", hello.Protocols)
			}
			got := make([]byte, len(s.sent))
			if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, s.sent) {
				t.Errorf("the connection lost bytes: %v", err)
			}
		})
	}
}

func TestHostileHellos(t *testing.T) {
	record := helloOf(t, &tls.Config{ServerName: "a.test"})
	huge := append([]byte{22, 3, 1, 0x40, 0, 1, 1, 0, 0}, make([]byte, 1<<14-4)...)
	for name, s := range map[string]struct {
		sent []byte
		want error
	}{
		"huge":                 {huge, opening.ErrLargeHello},
		"endless tiny records": {bytes.Repeat([]byte{22, 3, 1, 0, 1, 1}, 1<<14), opening.ErrLargeHello},
		"many records": {divided(append([]byte{22, 3, 1, 0, 0, 1, 0, 0x3f, 0}, make([]byte, 0x3f00)...), 2),
			opening.ErrLargeHello},
		"empty records":         {bytes.Repeat([]byte{22, 3, 1, 0, 0}, 10), opening.ErrNoHello},
		"another message":       {[]byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, opening.ErrNoHello},
		"another record":        {append(slices.Clone(divided(record, 10)[:15]), 23, 3, 1, 0, 1, 0), opening.ErrNoHello},
		"SSL 2":                 {[]byte{0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10}, opening.ErrNoHello},
		"nonsense in a message": {[]byte{22, 3, 1, 0, 8, 1, 0, 0, 4, 9, 9, 9, 9}, opening.ErrNoHello},
		"closed in the middle":  {record[:100], io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			go func() {
				_, _ = client.Write(s.sent) // the server may have closed
				_ = client.CloseWrite()
			}()
			if hello, err := opening.PeekHello(server); !errors.Is(err, s.want) {
				t.Errorf("%+v, %v, want %v", hello, err, s.want)
			}
		})
	}
}

// TestEndBeforeHello: the client has closed its side before the peek, which must not wait.
func TestEndBeforeHello(t *testing.T) {
	client, server := pair(t)
	if _, err := client.Write([]byte{22, 3, 1}); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil { // loopback delivers before the call returns
		t.Fatal(err)
	}
	if hello, err := opening.PeekHello(server); !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v, want io.EOF", hello, err)
	}
}

// TestEndMeetsPeek: the last byte and the end come while the peek asks whether there are more.
func TestEndMeetsPeek(t *testing.T) {
	request := opening.SSLRequest()
	for range 200 {
		client, server := pair(t)
		go func() {
			for _, b := range request {
				_, _ = client.Write([]byte{b}) // the test fails by what arrives
			}
			_ = client.CloseWrite()
		}()
		if kind, err := opening.PeekKind(server); err != nil || kind != opening.PostgreSQL {
			t.Fatalf("%v, %v, want %v", kind, err, opening.PostgreSQL)
		}
	}
}

func TestSlowHello(t *testing.T) {
	client, server := pair(t)
	if _, err := client.Write([]byte{22, 3, 1}); err != nil {
		t.Fatal(err)
	}
	_ = server.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := opening.PeekHello(server); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want the deadline", err)
	}
}

func TestKinds(t *testing.T) {
	request := opening.SSLRequest()
	for _, s := range []struct {
		sent string
		want opening.Kind
	}{
		{"\x16\x03\x01", opening.TLS}, {"GET / HTTP/1.1\r\n", opening.Other},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", opening.HTTP2},
		{"PRO", opening.Other}, {"PR", opening.Other}, {string(request), opening.PostgreSQL},
		{"\x00\x00\x00\x08\x04\xd2\x16\x30", opening.PostgreSQL}, {"\x00\x00\x00\x08\x00", opening.Other},
		{string(request[:5]), opening.Other}, {"\x00", opening.Other},
	} {
		client, server := pair(t)
		go func() {
			for i := range len(s.sent) {
				_, _ = client.Write([]byte{s.sent[i]}) // the test fails by what arrives
			}
			_ = client.CloseWrite()
		}()
		if kind, err := opening.PeekKind(server); err != nil || kind != s.want {
			t.Errorf("%q: %v, %v, want %v", s.sent, kind, err, s.want)
		}
		if b, err := io.ReadAll(server); err != nil || string(b) != s.sent {
			t.Errorf("%q: the connection has %q, %v", s.sent, b, err)
		}
	}
}

// echConfigs returns a list with one configuration of Encrypted Client Hello (RFC 9849, 4).
func echConfigs(t *testing.T, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sized := func(b []byte) []byte { return append([]byte{byte(len(b) >> 8), byte(len(b))}, b...) }
	contents := append([]byte{7, 0, 0x20}, sized(key.PublicKey().Bytes())...)
	contents = append(contents, sized([]byte{0, 1, 0, 1})...) // HKDF-SHA256, AES-128-GCM
	contents = append(contents, 0, byte(len(public)))
	contents = append(append(contents, public...), 0, 0)
	return sized(append([]byte{0xfe, 0x0d}, sized(contents)...))
}
