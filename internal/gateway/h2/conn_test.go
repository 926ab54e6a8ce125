package h2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// scripted is a connection that returns what r returns.
type scripted struct {
	net.Conn
	r io.Reader
}

func (s *scripted) Read(p []byte) (int, error) { return s.r.Read(p) }

// read returns what the server reads of a connection, with reads of different sizes on both sides.
func read(t *testing.T, sent []byte, chunk int) []byte {
	t.Helper()
	var from io.Reader = bytes.NewReader(sent)
	if chunk == 1 {
		from = iotest.OneByteReader(from)
	}
	c := New(&scripted{r: from}, func() {})
	var got []byte
	p := make([]byte, chunk)
	for {
		n, err := c.Read(p)
		got = append(got, p[:n]...)
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
	}
}

// frames writes frames behind the preface.
func frames(write func(f *http2.Framer)) []byte {
	out := bytes.NewBufferString(http2.ClientPreface)
	f := http2.NewFramer(out, nil)
	f.AllowIllegalWrites = true
	write(f)
	return out.Bytes()
}

func block(fields ...string) []byte {
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into a buffer
	}
	return out.Bytes()
}

// request is the header block of a request with further fields.
func request(fields ...string) []byte {
	common := []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a.test"}
	return block(append(common, fields...)...)
}

func TestPassesFrames(t *testing.T) {
	sent := frames(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
		_ = f.WriteSettingsAck()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: request("te", "trailers",
			"cookie", strings.Repeat("x", 9000)), EndHeaders: true, PadLength: 7,
			Priority: http2.PriorityParam{StreamDep: 3, Weight: 9}})
		_ = f.WriteData(1, false, bytes.Repeat([]byte("d"), maxFrame))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: request("connection", "x")})
		_ = f.WriteContinuation(3, true, nil)
		_ = f.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5))
		_ = f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 5, []byte{200, 1})
		_ = f.WriteRawFrame(http2.FrameHeaders, 0, 5, make([]byte, maxFrame+1))
		_ = f.WriteRawFrame(99, 0, 7, []byte("unknown"))
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 7},
			http2.Setting{ID: http2.SettingEnablePush})
	})
	for _, chunk := range []int{1, 10, 1 << 16} {
		if got := read(t, sent, chunk); !bytes.Equal(got, sent) {
			t.Errorf("in reads of %d bytes: %d bytes passed, %d sent, equal up to %d", chunk, len(got), len(sent),
				equalUpTo(got, sent))
		}
	}
}

func equalUpTo(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func TestMalformedRequestsGetAMalformedField(t *testing.T) {
	for _, s := range []struct {
		fields []string
		want   bool
	}{
		{[]string{"connection", "close"}, true}, {[]string{"keep-alive", "x"}, true},
		{[]string{"proxy-connection", "x"}, true}, {[]string{"transfer-encoding", "chunked"}, true},
		{[]string{"upgrade", "h2c"}, true}, {[]string{"te", "gzip"}, true}, {[]string{"te", "trailers"}, false},
		{[]string{"x-connection", "x"}, false}, {nil, false},
	} {
		sent := frames(func(f *http2.Framer) {
			for id := uint32(1); id < 99; id += 2 {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: request(s.fields...),
					EndHeaders: true, EndStream: true, PadLength: uint8(id)})
			}
		})
		for _, chunk := range []int{1, 1 << 16} {
			got := http2.NewFramer(nil, bytes.NewReader(read(t, sent, chunk)[len(http2.ClientPreface):]))
			got.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			for id := uint32(1); id < 99; id += 2 {
				_, err := got.ReadFrame()
				var refused http2.StreamError
				if errors.As(err, &refused) != s.want || s.want && refused.StreamID != id || err != nil && !s.want {
					t.Fatalf("%q, stream %d: %v, want an error of the stream: %v", s.fields, id, err, s.want)
				}
			}
		}
	}
}

func TestTheLastValueOfASettingCounts(t *testing.T) {
	const window, frame = http2.SettingInitialWindowSize, http2.SettingMaxFrameSize
	sent := frames(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: window, Val: 100}, http2.Setting{ID: frame, Val: 20000},
			http2.Setting{ID: window, Val: 1})
		_ = f.WritePing(false, [8]byte{1})
	})
	got := http2.NewFramer(nil, bytes.NewReader(read(t, sent, 1<<16)[len(http2.ClientPreface):]))
	first, err := got.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	s := first.(*http2.SettingsFrame)
	if value, _ := s.Value(window); s.NumSettings() != 2 || value != 1 {
		t.Errorf("the server gets %v", s)
	}
	if second, err := got.ReadFrame(); err != nil || second.Header().Type != http2.FramePing {
		t.Errorf("the next frame is %v, error %v", second, err)
	}
}

func TestPreface(t *testing.T) {
	c := New(&scripted{r: strings.NewReader("PRIVATE / HTTP/1.1\r\nHost: a\r\n\r\n")}, func() {})
	if n, err := c.Read(make([]byte, 100)); n > 0 || !errors.Is(err, errPreface) {
		t.Errorf("%d bytes, error %v", n, err)
	}
}

// FuzzConn proves that nothing that a client sends makes the inspection fail, and that frames which are
// not inspected pass unchanged.
func FuzzConn(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}, false)
	f.Add(frames(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: request("te", "x"), EndHeaders: true})
	})[len(http2.ClientPreface):], true)
	f.Fuzz(func(t *testing.T, data []byte, oneByte bool) {
		chunk := 1 << 16
		if oneByte {
			chunk = 1
		}
		got := read(t, append([]byte(http2.ClientPreface), data...), chunk)[len(http2.ClientPreface):]
		for len(data) >= header {
			length := int(data[0])<<16 | int(data[1])<<8 | int(data[2])
			kind := http2.FrameType(data[3])
			if kind == http2.FrameHeaders || kind == http2.FrameSettings {
				return
			}
			n := min(header+length, len(data))
			if !bytes.Equal(got[:n], data[:n]) {
				t.Fatalf("%x became %x", data[:n], got[:n])
			}
			data, got = data[n:], got[n:]
		}
	})
}
