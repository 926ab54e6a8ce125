package load

import (
	"bytes"
	"testing"
)

func TestParseMessage(t *testing.T) {
	head := "GET / HTTP/1.1\r\nhost: x\r\ncontent-LENGTH:  12 \r\nConnection: Close\r\nSec-WebSocket-Key: k\r\n\r\n"
	m, ok, err := parseMessage([]byte(head + "body"))
	if err != nil || !ok || m.size != len(head) || m.length != 12 || !m.last || string(m.key) != "k" {
		t.Errorf("%+v, %v, %v", m, ok, err)
	}
	for i := range head {
		if _, ok, err := parseMessage([]byte(head[:i])); ok || err != nil {
			t.Fatalf("the first %d bytes are complete: %v", i, err)
		}
	}
	if m, ok, err := parseMessage([]byte("HTTP/1.1 200 OK\r\n\r\n")); m.length != -1 || m.last || !ok || err != nil {
		t.Errorf("%+v, %v, %v", m, ok, err)
	}
}

// TestUpgrade uses the example of RFC 6455, 1.3.
func TestUpgrade(t *testing.T) {
	if got := upgrade([]byte(webSocketKey)); !bytes.Contains(got, []byte(": s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n")) {
		t.Errorf("%q", got)
	}
}

func TestUnmaskReturnsTheClientsPayload(t *testing.T) {
	sent, want := frames([]byte("a short message"))
	for i := range sent {
		if _, size, err := unmask(bytes.Clone(sent[:i])); size != 0 || err != nil {
			t.Fatalf("the first %d bytes are a frame: %v", i, err)
		}
	}
	got, size, err := unmask(append(bytes.Clone(sent), "next"...))
	if err != nil || size != len(sent) || !bytes.Equal(got, want) {
		t.Errorf("%q, %d, %v", got, size, err)
	}
	if _, _, err := unmask(want); err == nil {
		t.Error("an unmasked frame is accepted")
	}
}

func TestHTTP2Status(t *testing.T) {
	for _, head := range [][]byte{{0x88}, {0x20, 0x88, 0x40}} {
		if err := http2Status(head); err != nil {
			t.Errorf("%x: %v", head, err)
		}
	}
	for _, head := range [][]byte{{}, {0x20}, {0x8d}, {0x48, 3, '5', '0', '2'}} {
		if http2Status(head) == nil {
			t.Errorf("%x counts as 200", head)
		}
	}
}
