package opening_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"fairlead/internal/gateway/opening"
)

const v2Signature = "\r\n\r\n\x00\r\nQUIT\n"

func TestHeaders(t *testing.T) {
	v4 := "\xc0\x00\x02\x01\xc6\x33\x64\x02\x12\x34\x01\xbb"
	v6 := "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" + "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) +
		"\x02\x12\x34\x01\xbb"
	for name, s := range map[string]struct{ header, remote, local string }{
		"version 1, IPv4": {"PROXY TCP4 192.0.2.1 198.51.100.2 4660 443\r\n", "192.0.2.1:4660", "198.51.100.2:443"},
		"version 1, IPv6": {"PROXY TCP6 2001:db8::1 2001:db8::2 4660 443\r\n", "[2001:db8::1]:4660",
			"[2001:db8::2]:443"},
		"version 1, unknown": {"PROXY UNKNOWN\r\n", "", ""},
		"version 2, IPv4":    {v2Signature + "\x21\x11\x00\x0c" + v4, "192.0.2.1:4660", "198.51.100.2:443"},
		"version 2, IPv6":    {v2Signature + "\x21\x21\x00\x24" + v6, "[2001:db8::1]:4660", "[2001:db8::2]:443"},
		"version 2, with a TLV": {v2Signature + "\x21\x11\x00\x11" + v4 + "\x04\x00\x02\x00\x00", "192.0.2.1:4660",
			"198.51.100.2:443"},
		"version 2, local": {v2Signature + "\x20\x00\x00\x00", "", ""},
		"none":             {"", "", ""},
	} {
		for _, step := range []int{1, 1000} {
			client, server := pair(t)
			const data = "PRI data after the header"
			go func() {
				for text := s.header + data; text != ""; {
					n := min(step, len(text))
					_, _ = io.WriteString(client, text[:n]) // the test fails by what arrives
					text = text[n:]
				}
				_ = client.CloseWrite()
			}()
			c, err := opening.ReadHeader(server)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			remote, local := s.remote, s.local
			if remote == "" {
				remote, local = server.RemoteAddr().String(), server.LocalAddr().String()
			}
			if c.RemoteAddr().String() != remote || c.LocalAddr().String() != local {
				t.Errorf("%s: from %s to %s, want %s and %s", name, c.RemoteAddr(), c.LocalAddr(), remote, local)
			}
			if b, err := io.ReadAll(c); err != nil || string(b) != data {
				t.Errorf("%s: then %q, %v", name, b, err)
			}
			if p, ok := c.(interface{ Plain() *net.TCPConn }); ok && p.Plain() != server {
				t.Errorf("%s: the TCP connection is lost", name)
			}
		}
	}
}

func TestFaultyHeaders(t *testing.T) {
	for name, sent := range map[string]string{
		"endless line":     "PROXY TCP4 " + strings.Repeat("1", 200),
		"no address":       "PROXY TCP4\r\n",
		"wrong address":    "PROXY TCP4 192.0.2.300 198.51.100.2 1 2\r\n",
		"wrong port":       "PROXY TCP4 192.0.2.3 198.51.100.2 1 65536\r\n",
		"too long":         v2Signature + "\x21\x11\xff\xff" + strings.Repeat("x", 70000),
		"too short":        v2Signature + "\x21\x11\x00\x04abcd",
		"wrong version":    v2Signature + "\x31\x11\x00\x0c123456789012",
		"closed in a line": "PROXY TCP4 192.0.2.3",
		"closed in binary": v2Signature + "\x21",
	} {
		client, server := pair(t)
		go func() {
			_, _ = io.WriteString(client, sent) // the server may have closed
			_ = client.CloseWrite()
		}()
		if c, err := opening.ReadHeader(server); err == nil {
			t.Errorf("%s: accepted, from %s", name, c.RemoteAddr())
		}
	}
}

// TestHeaderGoesThere checks that a header that the gateway sends is one that it reads.
func TestHeaderGoesThere(t *testing.T) {
	for version := 1; version <= 2; version++ {
		client, server := pair(t)
		header, err := opening.Header(version, server)
		if err != nil {
			t.Fatal(err)
		}
		to, from := pair(t)
		if _, err := to.Write(header); err != nil {
			t.Fatal(err)
		}
		c, err := opening.ReadHeader(from)
		if err != nil || c.RemoteAddr().String() != client.LocalAddr().String() {
			t.Errorf("version %d: %v, from %s, want %s", version, err, c.RemoteAddr(), client.LocalAddr())
		}
	}
}
