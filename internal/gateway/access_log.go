package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/gateway/forwarded"
	"fairlead/internal/model/gateway"
)

// accessLog writes one line per request.
type accessLog struct {
	value gateway.AccessLog
	mu    sync.Mutex
	file  *os.File
	out   *bufio.Writer
}

func newAccessLog(value gateway.AccessLog) (*accessLog, error) {
	if value.Format != "" && value.Format != "common" && value.Format != "json" {
		return nil, fmt.Errorf("access log format %s: want common or json", value.Format)
	}
	l := &accessLog{value: value}
	l.to(os.Stdout)
	return l, nil
}

// OpenLog opens the file of an access log for LogTo.
func OpenLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("access log: %w", err)
	}
	return f, nil
}

// LogTo writes the access log to the file from now on, and closes the file before. Without
// it, the log goes to the standard output: the gateway opens no file itself, so that it
// needs no right to.
func (g *Gateway) LogTo(file *os.File) {
	if g.observer.log == nil {
		_ = file.Close() // nothing was written
		return
	}
	g.observer.log.to(file)
}

func (l *accessLog) to(file *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.out.Flush() // as with each line, a full disk must not stop requests
		if l.file != os.Stdout {
			_ = l.file.Close()
		}
	}
	l.file, l.out = file, bufio.NewWriterSize(file, 4096)
}

// flush writes what is buffered.
func (l *accessLog) flush() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.out.Flush()
}

// write logs a request.
func (l *accessLog) write(entry string, number uint64, took time.Duration, x *exchange, r *http.Request) {
	if !l.wants(x, took) {
		return
	}
	var line []byte
	if l.value.Format == "json" {
		line = jsonLine(entry, number, took, x, r)
	} else {
		line = commonLine(number, took, x, r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.out.Write(line) // a full disk must not stop requests
	if l.value.BufferingSize == 0 {
		_ = l.out.Flush()
	}
}

// userOf returns the name that a middleware has authenticated, or else the one that the
// client claims.
func userOf(r *http.Request) string {
	if r.URL.User != nil {
		return r.URL.User.Username()
	}
	name, _, _ := r.BasicAuth()
	return name
}

// wants reports whether the filters keep the request.
func (l *accessLog) wants(x *exchange, took time.Duration) bool {
	v := &l.value
	if len(v.StatusCodes) == 0 && !v.RetryAttempts && v.MinDuration == 0 {
		return true
	}
	for _, codes := range v.StatusCodes {
		low, high, ok := strings.Cut(codes, "-")
		if !ok {
			high = low
		}
		from, _ := strconv.Atoi(low)
		to, _ := strconv.Atoi(high)
		if x.status >= from && x.status <= to {
			return true
		}
	}
	return v.RetryAttempts && x.attempts > 1 || v.MinDuration > 0 && took >= v.MinDuration
}

// commonLine is the Common Log Format with Traefik's additions: the number of
// requests, router, server, and milliseconds.
func commonLine(number uint64, took time.Duration, x *exchange, r *http.Request) []byte {
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	user := "-"
	if name := userOf(r); name != "" {
		user = escape.Line(name)
	}
	router, server := "-", "-"
	if x.router != nil {
		router = x.router.Name
	}
	if x.server != "" {
		server = "http://" + x.server
	}
	return fmt.Appendf(nil, "%s - %s [%s] %q %d %d %s %s %d %q %q %dms\n", client, user,
		x.started.Format("02/Jan/2006:15:04:05 -0700"), r.Method+" "+x.target+" "+r.Proto, x.status, x.written,
		quoted(r.Referer()), quoted(r.UserAgent()), number, router, server, took.Milliseconds())
}

func quoted(s string) string {
	if s == "" {
		return `"-"`
	}
	return strconv.Quote(s)
}

// jsonLine is a JSON object with Traefik's names. Durations are in nanoseconds.
func jsonLine(entry string, number uint64, took time.Duration, x *exchange, r *http.Request) []byte {
	client, port, _ := net.SplitHostPort(r.RemoteAddr)
	o := map[string]any{
		"ClientAddr": r.RemoteAddr, "ClientHost": client, "ClientPort": port, "ClientUsername": "-",
		"DownstreamContentSize": x.written, "DownstreamStatus": x.status, "Duration": took.Nanoseconds(),
		"OriginDuration": x.took.Nanoseconds(), "Overhead": (took - x.took).Nanoseconds(),
		"RequestAddr": r.Host, "RequestContentSize": max(r.ContentLength, 0), "RequestCount": number,
		"RequestHost": hostOf(r.Host), "RequestMethod": r.Method, "RequestPath": x.target,
		"RequestProtocol": r.Proto, "RequestScheme": forwarded.Scheme(r), "RetryAttempts": max(x.attempts-1, 0),
		"StartLocal": x.started, "StartUTC": x.started.UTC(), "entryPointName": entry, "level": "info", "msg": "",
		"time": time.Now(), "request_User-Agent": r.UserAgent(), "request_Referer": r.Referer(),
	}
	if name := userOf(r); name != "" {
		o["ClientUsername"] = name
	}
	if x.router != nil {
		o["RouterName"] = x.router.Name
	}
	if x.service != "" {
		o["ServiceName"], o["ServiceAddr"], o["ServiceURL"] = x.service, x.server, "http://"+x.server
	}
	line, err := json.Marshal(o)
	if err != nil {
		return nil // strings and numbers always encode
	}
	return append(line, '\n')
}
