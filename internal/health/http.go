package health

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"fairlead/internal/model"
)

// httpCheck requests a page, and passes if its status and body match. It does not
// follow redirects, which could check another server.
type httpCheck struct {
	method, path, host string
	// before and after are the parts of a request before and after the host's name.
	before, after string
	status        []model.PortRange
	// wants is the status as the user wrote it, for details.
	wants string
	body  *regexp.Regexp
	tls   *secure
}

var (
	httpType = Type{Name: model.CheckHTTP, Settings: []string{"method", "path", "host", "status", "body"},
		overlaps: always, checker: newHTTP}
	httpsType = Type{Name: model.CheckHTTPS, Settings: append([]string{"tls"}, httpType.Settings...), TLS: true,
		overlaps: always, checker: newHTTP}
)

func newHTTP(c model.Check, m Means) (Checker, error) {
	h := httpCheck{method: cmp.Or(c.Method, http.MethodGet), host: c.Host, wants: cmp.Or(c.Status, "200-399")}
	if strings.ContainsFunc(h.method+h.host, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, fmt.Errorf("method %q and host %q: want words without spaces", h.method, h.host)
	}
	page, err := url.ParseRequestURI(cmp.Or(c.Path, "/"))
	if err != nil || page.Host != "" {
		return nil, fmt.Errorf("path %q: want one that begins with /", c.Path)
	}
	h.path = page.RequestURI()
	h.before = h.method + " " + h.path + " HTTP/1.1\r\nHost: "
	h.after = "\r\nUser-Agent: fairlead\r\nAccept: */*\r\nConnection: close\r\n\r\n"
	if h.status, err = model.ParseStatus(c.Status); err != nil {
		return nil, err
	}
	if c.Body != "" {
		h.body, err = regexp.Compile(c.Body)
	}
	if c.Type == model.CheckHTTPS {
		h.tls = newSecure(c, m)
	}
	return h, err
}

// Check implements Checker.
func (h httpCheck) Check(ctx context.Context, at Target) Result {
	raw, err := open(ctx, at, "tcp")
	if err != nil {
		return broken(ctx, "connect", err)
	}
	defer raw.Close()
	conn := net.Conn(raw)
	if h.tls != nil {
		if conn, err = h.tls.client(ctx, raw, "http/1.1"); err != nil {
			return broken(ctx, "TLS", err)
		}
	}
	request := append(make([]byte, 0, 256), h.before...)
	if h.host != "" {
		request = append(request, h.host...)
	} else {
		request = at.Real.AppendTo(request)
	}
	if _, err := conn.Write(append(request, h.after...)); err != nil {
		return broken(ctx, "send", err)
	}
	return h.read(ctx, conn)
}

// readers are the buffers with which checks read the lines of an answer's header.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1024) }}

// read reads the answer: at most answerLimit bytes of header, and then at most
// readLimit bytes with the body's encoding.
func (h httpCheck) read(ctx context.Context, conn net.Conn) Result {
	limited := &io.LimitedReader{R: conn, N: answerLimit}
	from := readers.Get().(*bufio.Reader)
	from.Reset(limited)
	defer func() {
		from.Reset(nil)
		readers.Put(from)
	}()
	answer, err := final(from, h.method)
	switch {
	case err != nil && limited.N <= 0:
		return failed("read: the header of the answer has no end")
	case err != nil:
		return broken(ctx, "read", err)
	}
	if !h.accepts(answer.StatusCode) {
		return failed("status %d, want %s", answer.StatusCode, h.wants)
	}
	if h.body == nil {
		finish(conn, answer.Body)
		return passed("status %d", answer.StatusCode)
	}
	limited.N = readLimit
	if !matches(h.body, answer.Body) {
		return failed("status %d, but the body does not match", answer.StatusCode)
	}
	return passed("status %d, and the body matches", answer.StatusCode)
}

// finish reads the rest of the answer, if it is short and comes soon: many servers
// write a line to their log if a connection is reset before the answer's end.
func finish(conn net.Conn, body io.Reader) {
	if conn.SetReadDeadline(time.Now().Add(finishTimeout)) == nil {
		_, _ = io.CopyN(io.Discard, body, answerLimit) // the result is already known
	}
}

// finishTimeout is how long to wait for the rest of an answer.
const finishTimeout = 100 * time.Millisecond

// final returns the first final answer: some servers send interim answers before
// it (RFC 9110, section 15.2).
func final(from *bufio.Reader, method string) (*http.Response, error) {
	for range 8 {
		answer, err := http.ReadResponse(from, &http.Request{Method: method})
		if err == nil && answer.ProtoMajor != 1 {
			return nil, fmt.Errorf("the answer is of %s, and the question of HTTP/1.1", answer.Proto)
		}
		if err != nil || answer.StatusCode >= 200 || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, err
		}
	}
	return nil, fmt.Errorf("too many interim answers")
}

func (h httpCheck) accepts(status int) bool {
	for _, r := range h.status {
		if status >= int(r.First) && status <= int(r.Last) {
			return true
		}
	}
	return false
}

// matches reads the body until the expression matches, or the body ends.
func matches(want *regexp.Regexp, body io.Reader) bool {
	text := make([]byte, 0, 4096)
	tried := 0
	for {
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		last := err != nil || len(text) >= answerLimit
		if last || len(text)*4 >= tried*5 {
			if want.Match(text) {
				return true
			}
			tried = len(text)
		}
		if last {
			return false
		}
		if len(text) == cap(text) {
			text = append(make([]byte, 0, min(answerLimit, 4*cap(text))), text...)
		}
	}
}
