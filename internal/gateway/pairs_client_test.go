package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"slices"
	"time"
)

// sent is what a client sends, and how.
type sent struct {
	text []byte
	// whole: all of text is sent. responses is how many final ones come at most.
	whole     bool
	responses int
	upgrade   bool
	// after is what the client does with the connection when the text is sent.
	after func(net.Conn)
}

// request returns a random request, perhaps cut, with another one behind it.
func (p *pairs) request(random *rand.Rand, marker string) sent {
	s := sent{whole: true, responses: 1, upgrade: random.IntN(3) == 0, after: func(net.Conn) {}}
	method, fields := "POST", ""
	if s.upgrade {
		method, fields = "GET", "Connection: Upgrade\r\nUpgrade: test\r\n"
	}
	if random.IntN(6) == 0 {
		fields += "Expect: 100-continue\r\n"
	}
	body := filled(marker, []int{0, 10, 4096, 20 << 10, 200 << 10}[random.IntN(5)])
	switch random.IntN(4) {
	case 0:
		fields += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	case 1:
		body = nil
	default:
		fields += "Transfer-Encoding: chunked\r\n"
		body = chunks(random, body)
	}
	s.text = append(p.head(random, method, marker, fields), body...)
	switch random.IntN(6) {
	case 0, 1:
		s.text, s.whole = s.text[:random.IntN(len(s.text))], false
	case 2:
		s.text = append(s.text, p.head(random, "GET", marker, "")...)
		s.responses = 2
	}
	switch random.IntN(5) {
	case 0:
		s.after = func(c net.Conn) {
			if half, ok := c.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		}
	case 1:
		s.after, s.whole = func(c net.Conn) { _ = c.Close() }, false
	case 2:
		s.whole = false
		s.after = func(c net.Conn) {
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetLinger(0)
			}
			_ = c.Close()
		}
	}
	return s
}

func (p *pairs) head(random *rand.Rand, method, marker, fields string) []byte {
	kind := "application/x"
	if random.IntN(4) == 0 {
		kind = "application/grpc-web"
	}
	return fmt.Appendf(nil, "%s /%s HTTP/1.1\r\nHost: a.test\r\nX-Marker: %s\r\nX-Server: %s\r\nX-Seed: %d\r\n"+
		"Content-Type: %s\r\n%s\r\n", method, pairsOf[random.IntN(len(pairsOf))], marker,
		serverActs[random.IntN(len(serverActs))], random.Uint64(), kind, fields)
}

// chunks encodes a body in chunks of random sizes, one of them perhaps malformed.
func chunks(random *rand.Rand, body []byte) (out []byte) {
	for len(body) > 0 {
		n := 1 + random.IntN(len(body))
		out = fmt.Appendf(out, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
		if random.IntN(30) == 0 {
			out = append(out, "zz\r\n"...)
		}
	}
	return append(out, "0\r\n\r\n"...)
}

// raw sends requests on one connection, byte by byte as a client likes.
func (p *pairs) raw(random *rand.Rand) {
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		p.Error(err)
		return
	}
	if random.IntN(3) == 0 {
		c = tls.Client(c, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true})
	}
	defer c.Close()
	marker := p.marker()
	in := bufio.NewReader(c)
	for range 1 + random.IntN(3) {
		s := p.request(random, marker)
		pieces, slow := split(random, s.text), random.IntN(4) == 0
		pause := rand.New(rand.NewPCG(random.Uint64(), 0))
		written := make(chan struct{})
		go func() {
			defer close(written)
			for _, piece := range pieces {
				if _, err := c.Write(piece); err != nil {
					return
				}
				if slow {
					p.pause(pause, 2)
				}
			}
			s.after(c)
		}()
		again := p.answers(c, in, s, marker)
		if !again {
			_ = c.Close()
		}
		if <-written; !again {
			return
		}
	}
}

// split divides bytes into random pieces.
func split(random *rand.Rand, b []byte) [][]byte {
	var pieces [][]byte
	for len(b) > 0 {
		n := 1 + random.IntN(len(b))
		pieces, b = append(pieces, b[:n]), b[n:]
	}
	return pieces
}

// patience is how long a client waits for an answer, under the race detector on a busy machine.
const patience = 30 * time.Second

// silent fails the test because of an answer that does not come, and shows what all goroutines do.
func (p *pairs) silent(what string) {
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	p.Errorf("no %s\n%s", what, stacks.Bytes())
}

// answers reads the responses. It returns whether the connection can be used again.
func (p *pairs) answers(c net.Conn, in *bufio.Reader, s sent, marker string) bool {
	wait := patience
	if !s.whole {
		wait = 100 * time.Millisecond
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	for n := 0; n < s.responses; {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			if s.whole && errors.Is(err, os.ErrDeadlineExceeded) {
				p.silent(fmt.Sprintf("answer %d of %d to %.500q", n+1, s.responses, s.text))
			}
			return false
		}
		switch {
		case response.StatusCode == http.StatusSwitchingProtocols:
			p.tunnel(c, in, s, marker)
			return false
		case response.StatusCode < 200:
			continue
		}
		n++
		if !p.check(response, marker) || response.Close || response.StatusCode == http.StatusBadRequest {
			return false
		}
	}
	return s.whole
}

// tunnel sends bytes over an upgraded connection, and checks those that come back.
func (p *pairs) tunnel(c net.Conn, in io.Reader, s sent, marker string) {
	if !s.upgrade {
		p.Errorf("a change of protocol that was not asked for: %.300q", s.text)
	}
	if s.whole {
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the request is sent; more would be data of the other protocol
		}
	}
	_, err := io.Copy(io.Discard, &foreign{from: in, marker: marker, wrong: p.wrong})
	if s.whole && errors.Is(err, os.ErrDeadlineExceeded) {
		p.silent(fmt.Sprintf("end of the upgraded connection: %.300q", s.text))
	}
}

func (p *pairs) wrong(what string) { p.Error("a byte of another client: " + what) }

// check reads a response. It returns whether it was complete.
func (p *pairs) check(response *http.Response, marker string) bool {
	defer response.Body.Close()
	got, ok := response.Header["X-Marker"]
	// http.Error sets this header: the answer is the gateway's own.
	if own := response.Header.Get("X-Content-Type-Options") == "nosniff"; own && ok {
		p.Errorf("an answer of the gateway has fields of a failed response: %v", response.Header)
	}
	if !ok {
		body, err := io.ReadAll(response.Body)
		if response.StatusCode < 400 || bytes.IndexByte(body, '<') >= 0 {
			p.Errorf("got %d without a marker: %.100q", response.StatusCode, body)
		}
		return err == nil
	}
	if !slices.Equal(got, []string{marker}) {
		p.wrong(fmt.Sprintf("a response for %q at %s", got, marker))
	}
	_, err := io.Copy(io.Discard, &foreign{from: response.Body, marker: marker, wrong: p.wrong})
	return err == nil
}

// library sends requests with net/http or quic-go, and gives some of them up.
func (p *pairs) library(client *http.Client) func(*rand.Rand) {
	return func(random *rand.Rand) {
		marker := p.marker()
		ctx, cancel := context.WithTimeout(p.Context(), patience)
		defer cancel()
		gives := random.IntN(3) == 0
		if gives {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(5000))*time.Microsecond)
			defer cancel()
		}
		var body io.Reader = bytes.NewReader(filled(marker, random.IntN(100<<10)))
		if random.IntN(2) == 0 {
			body = io.MultiReader(body) // of unknown length
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost,
			"https://a.test/"+pairsOf[random.IntN(len(pairsOf))], body)
		if err != nil {
			p.Error(err)
			return
		}
		r.Header.Set("X-Marker", marker)
		r.Header.Set("X-Server", serverActs[random.IntN(len(serverActs))])
		r.Header.Set("X-Seed", fmt.Sprint(random.Uint64()))
		response, err := client.Do(r)
		if err == nil {
			p.check(response, marker)
		}
		if !gives && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.silent(fmt.Sprintf("answer to %v", r.Header))
		}
	}
}
