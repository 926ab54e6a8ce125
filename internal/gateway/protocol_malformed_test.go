package gateway_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
	"fairlead/test/place"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framed is a client of HTTP/2 that writes frames itself.
type framed struct {
	net.Conn
	*http2.Framer
	t       *testing.T
	encoder *hpack.Encoder
	block   bytes.Buffer
}

func (w *world) framed() *framed {
	w.t.Helper()
	c, err := tls.Dial("tcp", w.address, &tls.Config{InsecureSkipVerify: true, ServerName: "a.test",
		NextProtos: []string{"h2"}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(place.Timeout))
	f := &framed{Conn: c, Framer: http2.NewFramer(c, c), t: w.t}
	f.encoder, f.ReadMetaHeaders = hpack.NewEncoder(&f.block), hpack.NewDecoder(4096, nil)
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = f.WriteSettings()
	_ = f.WriteWindowUpdate(0, 1<<30)
	return f
}

// head writes the head of a request. Pseudo-header fields come first.
func (f *framed) head(stream uint32, end bool, fields ...string) error {
	f.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into a buffer
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block.Bytes(), EndHeaders: true,
		EndStream: end})
}

// status returns the status of the response on the stream, "reset" if it is reset, or the code of GOAWAY.
func (f *framed) status(stream uint32) string {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch at := frame.(type) {
		case *http2.MetaHeadersFrame:
			if at.StreamID == stream {
				return at.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if at.StreamID == stream {
				return "reset"
			}
		case *http2.GoAwayFrame:
			return at.ErrCode.String()
		}
	}
}

// TestMalformedRequestsOfHTTP2 sends what HTTP/1.1 refuses: HTTP/2 refuses it too.
func TestMalformedRequestsOfHTTP2(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	refused := []string{"400", "reset"}
	base := []string{":method", "GET", ":scheme", "https", ":path", "/"}
	asterisk := func(method string) []string {
		return []string{":method", method, ":scheme", "https", ":path", "*", ":authority", "a.test"}
	}
	with := func(fields ...string) []string { return append(base[:len(base):len(base)], fields...) }
	for name, c := range map[string]struct {
		fields []string
		want   []string
	}{
		"a common request":       {with(":authority", "a.test", "x", "y z"), []string{"200"}},
		"the host twice":         {with(":authority", "a.test", "host", "a.test"), []string{"200"}},
		"the host as a field":    {with("host", "a.test"), []string{"200"}},
		"authority with a path":  {with(":authority", "a.test/"), refused},
		"no authority":           {with(), refused},
		"empty authority":        {with(":authority", ""), refused},
		"another host":           {with(":authority", "a.test", "host", "b.test"), refused},
		"two host fields":        {with("host", "a.test", "host", "b.test"), refused},
		"two lengths":            {with(":authority", "a.test", "content-length", "0", "content-length", "5"), refused},
		"space before a value":   {with(":authority", "a.test", "x", " y"), refused},
		"tab behind a value":     {with(":authority", "a.test", "x", "y\t"), refused},
		"a target of no request": {asterisk("GET"), refused},
		"OPTIONS *":              {asterisk("OPTIONS"), []string{"200"}},
	} {
		f := w.framed()
		if err := f.head(1, true, c.fields...); err != nil {
			t.Fatal(err)
		}
		got := f.status(1)
		if got != c.want[0] && got != c.want[len(c.want)-1] {
			t.Errorf("%s: %s, want one of %v", name, got, c.want)
		}
	}
}

// TestResetsEndTheConnection resets many requests at once: the client gets GOAWAY. One that lets half of them
// complete stays.
func TestResetsEndTheConnection(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	request := []string{":method", "GET", ":scheme", "https", ":path", "/", ":authority", "a.test"}
	f := w.framed()
	go func() {
		for stream := uint32(1); stream < 8000; stream += 2 {
			if f.head(stream, true, request...) != nil || f.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
				return // the connection has ended
			}
		}
	}()
	if got := f.status(9999); got != http2.ErrCodeProtocol.String() && got != http2.ErrCodeEnhanceYourCalm.String() {
		t.Errorf("after 4,000 resets: %s, want GOAWAY", got)
	}
	other := w.framed()
	const whole = 1200
	for i := range uint32(whole) {
		one, two := 4*i+1, 4*i+3
		err := errors.Join(other.head(one, true, request...), other.head(two, true, request...))
		if got := other.status(one); err != nil || got != "200" {
			t.Fatalf("request %d: %s %v", i, got, err)
		}
		_ = other.WriteRSTStream(two, http2.ErrCodeCancel)
	}
}
