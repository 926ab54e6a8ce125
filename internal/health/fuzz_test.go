package health

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"fairlead/internal/model"
)

// FuzzParseAdvice checks that the advice from any answer is valid, and that its text
// is parsed as the same advice.
func FuzzParseAdvice(f *testing.F) {
	for _, text := range []string{"75%", "drain", "maint", "down", "up ready", "stopped # disk\x00full", "fail",
		"up 50%,ready\n", "-1%", "99999%", "\r\n\r\n10%\ndown", "maxconn:30", "%", "#"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := ParseAdvice(text)
		if a.Share < 0 || a.Share > mostShare || (a.Share != 0 && !a.Weighs) || a.Reason != oneLine(a.Reason) {
			t.Fatalf("%q is parsed as %+v", text, a)
		}
		again := ParseAdvice(strings.TrimSuffix(a.String(), "("+a.Reason+")"))
		again.Reason = a.Reason
		if again != a {
			t.Fatalf("%+v is written as %q, which is parsed as %+v", a, a, again)
		}
	})
}

// FuzzHTTPAnswer checks that the detail is printable for any answer of a server.
func FuzzHTTPAnswer(f *testing.F) {
	for _, text := range []string{"", "HTTP/1.1 200 OK\r\n\r\nwelcome",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwel\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 404 No\r\n\r\n", "HTTP/1.1 99999 \x1b\r\n\r\n",
		"HTTP/9.9 200\r\n a\r\n\r\n"} {
		f.Add([]byte(text))
	}
	one, err := newHTTP(model.Check{Type: model.CheckHTTP, Body: "^welcome$"}, Means{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		r := one.(httpCheck).read(t.Context(), said{from: bytes.NewReader(answer)})
		if r.Detail != oneLine(r.Detail) || r.Detail == "" || (r.OK && !bytes.HasPrefix(answer, []byte("HTTP/1."))) {
			t.Fatalf("%q: %+v", answer, r)
		}
	})
}

// FuzzGRPCAnswer checks that a check ends for any received frames.
func FuzzGRPCAnswer(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte("\x00\x00\x07\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x02\x08\x01"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		s := newStream(said{from: bytes.NewReader(answer)})
		for range mostFrames {
			if done, err := s.read(); done || err != nil {
				break
			}
		}
		if r := s.judge(); r.Detail != oneLine(r.Detail) || r.Detail == "" {
			t.Fatalf("%+v", r)
		}
	})
}

func FuzzHealthAnswer(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02\x08\x01"))
	f.Add([]byte("\x00\x00\x00\x00\x05\x12\x01a\x08\x02"))
	f.Add([]byte("\x00\xff\xff\xff\xff\x08\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if status, err := healthAnswer(body); err == nil && status == 1 && !bytes.ContainsAny(body, "\x01\x81") {
			t.Fatalf("%q is healthy", body)
		}
	})
}

func FuzzDNSAnswer(f *testing.F) {
	d, err := newDNS(model.Check{Query: "example.com"}, Means{})
	if err != nil {
		f.Fatal(err)
	}
	question, _ := d.(dnsCheck).pack(7)
	question[2] |= 0x80 // it is an answer
	f.Add(question)
	f.Add(append(bytes.Clone(question), 0xc0, 12, 0, 1, 0, 1))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		r, answers := d.(dnsCheck).judge(datagram, 7)
		if r.Detail != oneLine(r.Detail) || answers != (r.Detail != "") {
			t.Fatalf("%q: %+v", datagram, r)
		}
	})
}

func FuzzOneLine(f *testing.F) {
	f.Add("\x1b[2J\u202egnp.exe\n")
	f.Fuzz(func(t *testing.T, text string) {
		line := oneLine(text)
		if oneLine(line) != line && len(text) <= detailLimit || strings.ContainsAny(line, "\n\r\x00\x1b") ||
			len([]rune(line)) > detailLimit+1 {
			t.Fatalf("%q becomes %q", text, line)
		}
	})
}

// said is a connection on which the given bytes have arrived.
type said struct {
	net.Conn
	from *bytes.Reader
}

func (s said) Read(p []byte) (int, error)  { return s.from.Read(p) }
func (s said) Write(p []byte) (int, error) { return len(p), nil }
