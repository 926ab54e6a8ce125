package wire

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/gateway/h1/h1test"
)

// FuzzChunked proves that the decoder accepts only what net/http accepts, with the same data.
func FuzzChunked(f *testing.F) {
	for _, body := range []string{"3\r\nabc\r\n0\r\n\r\n", "3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"3 \r\nabc\r\n00\r\n\r\n",
		"3\nabc\r\n0\r\n\r\n", "3\r\nabc0\r\n\r\n", "0\r\n\n", "A\r\n0123456789\r\n0\r\nA: b\n\n",
		"0\r\n0:\n\r\n"} {
		f.Add(body)
	}
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	f.Fuzz(func(t *testing.T, data string) {
		in := &Input{Conn: &h1test.Scripted{R: strings.NewReader(data)}, Max: BufferSize}
		defer in.Release()
		var d Chunked
		d.Reset(in)
		var got []byte
		var err error
		for {
			var b []byte
			if b, err = d.Next(); err != nil {
				break
			}
			got = append(got, b...)
			d.Used(len(b))
		}
		if err != io.EOF {
			return
		}
		from := bufio.NewReaderSize(strings.NewReader(head+data), BufferSize)
		r, err := http.ReadRequest(from)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(r.Body)
		if err != nil || string(want) != string(got) {
			t.Fatalf("%q: got %q, net/http gets %q, error %v", data, got, want, err)
		}
		rest, _ := io.ReadAll(from)
		remains, _ := io.ReadAll(in.Conn)
		if ours := string(in.Bytes()) + string(remains); ours != string(rest) {
			t.Fatalf("%q: %q remains, with net/http %q", data, ours, rest)
		}
	})
}

// A connection that waits holds no large buffer, whatever it has received.
func TestBuffersOfWaitingConnections(t *testing.T) {
	for name, parts := range map[string][]int{"nothing": {0}, "part of a head": {100}, "drip": {1, 1, 1},
		"long head": {SmallSize, 100}} {
		server, client := h1test.TCPPair(t)
		var in Input
		in.Init(server)
		var sizes []int
		next := 0
		in.Wait = func() {
			sizes = append(sizes, len(in.Buf))
			if next < len(parts) {
				_, _ = client.Write(make([]byte, parts[next]))
				next++
			}
			if next == len(parts) {
				_ = client.CloseWrite()
			}
		}
		for in.Fill() == nil {
		}
		held, total := slices.Max(sizes), 0
		for _, n := range parts {
			total += n
		}
		if held > SmallSize+4*total {
			t.Errorf("%s: the buffer has %d bytes after %d received", name, held, total)
		}
		in.Release()
	}
}
