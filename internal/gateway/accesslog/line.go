package accesslog

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/gateway/forwarded"
	"fairlead/internal/gateway/metric"
)

// Request is a request that has ended.
type Request struct {
	*http.Request
	// Entry is the name of the entry point, Router that of the router, empty if there is none.
	Entry, Router string
	// Number is how many requests there were so far.
	Number uint64
	Began  time.Time
	Took   time.Duration
	// Target is as the client sent it.
	Target string
	// Received and Sent are the sizes of the bodies in bytes.
	Received, Sent int64
	Status         int
	// Answer is the header of the response.
	Answer http.Header
	// Attempts is how many times the request was sent to a server. Service and Server are those that
	// got it last; Server is nil if none did. ServerTook is how long the server took.
	Attempts   int
	Service    string
	Server     *url.URL
	ServerTook time.Duration
	Origin     Origin
}

// Origin is what the server answered. It is zero if no server answered.
type Origin struct {
	Status int
	// Size is that of the body in bytes.
	Size   int64
	Header http.Header
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

// clientOf returns the addresses that a trusted proxy names in X-Forwarded-For, or else the
// address and the port of the peer.
func clientOf(r *http.Request) (host, port string) {
	host, port = splitPort(r.RemoteAddr)
	if proxied := r.Header.Get(forwarded.For); proxied != "" {
		host = proxied
	}
	return host, port
}

// splitPort returns the host and the port, "-" if there is none.
func splitPort(address string) (host, port string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, "-"
	}
	return host, port
}

// commonLine is the Common Log Format with the referer and the client's program. Without format
// genericCLF, Traefik's additions follow: the number of requests, router, server, and milliseconds.
func (l *Log) commonLine(r *Request) []byte {
	client, _ := clientOf(r.Request)
	line := fmt.Appendf(nil, "%s - %s [%s] %s %s %s %s %s",
		l.or("ClientHost", escape.Line(client)), l.or("ClientUsername", escape.Line(userOf(r.Request))),
		l.timeOf(r.Began), strconv.Quote(l.or("RequestMethod", r.Method)+" "+
			l.or("RequestPath", l.pathOf(r.Target))+" "+l.or("RequestProtocol", r.Proto)),
		l.or("DownstreamStatus", strconv.Itoa(r.Status)),
		l.or("DownstreamContentSize", strconv.FormatInt(r.Sent, 10)),
		quoted(l.valueOf(r.Header, "Referer")), quoted(l.valueOf(r.Header, "User-Agent")))
	if l.value.Format == "genericCLF" {
		return append(line, '\n')
	}
	server, took := "", r.Took
	if r.Server != nil {
		server = r.Server.String()
	}
	if l.dropped["Duration"] {
		took = 0
	}
	return fmt.Appendf(line, " %s %s %s %dms\n", l.or("RequestCount", strconv.FormatUint(r.Number, 10)),
		quoted(l.or("RouterName", r.Router)), quoted(l.or("ServiceURL", server)), took.Milliseconds())
}

// or returns the value of a field, "-" if it is empty or dropped.
func (l *Log) or(field, value string) string {
	if value == "" || l.dropped[field] {
		return "-"
	}
	return value
}

// timeOf returns the time in UTC or, if that field is dropped, the local time.
func (l *Log) timeOf(t time.Time) string {
	const layout = "02/Jan/2006:15:04:05 -0700"
	if l.dropped["StartUTC"] {
		return l.or("StartLocal", t.Format(layout))
	}
	return t.UTC().Format(layout)
}

func quoted(s string) string {
	if s == "" {
		return `"-"`
	}
	return strconv.Quote(s)
}

// jsonLine is a JSON object with Traefik's names. Durations are in nanoseconds.
func (l *Log) jsonLine(r *Request) []byte {
	client, port := clientOf(r.Request)
	user := userOf(r.Request)
	if user == "" {
		user = "-"
	}
	o := map[string]any{
		"ClientAddr": r.RemoteAddr, "ClientHost": client, "ClientPort": port, "ClientUsername": user,
		"DownstreamContentSize": r.Sent, "DownstreamStatus": r.Status, "Duration": r.Took.Nanoseconds(),
		"Overhead": (r.Took - r.ServerTook).Nanoseconds(), "RequestContentSize": r.Received,
		"RequestCount": r.Number, "RequestMethod": r.Method, "RequestPath": l.pathOf(r.Target),
		"RequestProtocol": r.Proto, "RequestScheme": "http", "RetryAttempts": max(r.Attempts-1, 0),
		"StartLocal": r.Began, "StartUTC": r.Began.UTC(),
	}
	if r.Host != "" {
		host, port := splitPort(r.Host)
		o["RequestAddr"], o["RequestHost"], o["RequestPort"] = r.Host, host, port
	}
	if r.TLS != nil {
		addTLS(o, r.TLS)
	}
	if r.Router != "" {
		addOrigin(o, r)
	}
	for name, dropped := range l.dropped {
		if dropped {
			delete(o, name)
		}
	}
	o["entryPointName"], o["level"], o["msg"], o["time"] = r.Entry, "info", "", time.Now()
	l.add(o, "request_", r.Header)
	l.add(o, "origin_", r.Origin.Header)
	l.add(o, "downstream_", r.Answer)
	line, err := json.Marshal(o)
	if err != nil {
		return nil // strings and numbers always encode
	}
	return append(line, '\n')
}

// addTLS adds the fields of a request over TLS.
func addTLS(o map[string]any, s *tls.ConnectionState) {
	o["RequestScheme"] = "https"
	o["TLSVersion"], o["TLSCipher"] = metric.TLSVersion(s.Version), tls.CipherSuiteName(s.CipherSuite)
	if len(s.PeerCertificates) > 0 {
		o["TLSClientSubject"] = s.PeerCertificates[0].Subject.String()
	}
}

// addOrigin adds the router, and what the server answered: 0 if none did, for example to a request
// that is redirected.
func addOrigin(o map[string]any, r *Request) {
	o["RouterName"] = r.Router
	if r.Server != nil {
		o["ServiceName"], o["ServiceAddr"], o["ServiceURL"] = r.Service, r.Server.Host, r.Server.String()
	}
	if size := r.Origin.Size; size != r.Sent && r.Sent > 0 && size > 0 {
		o["GzipRatio"] = float64(size) / float64(r.Sent)
	}
	o["OriginStatus"], o["OriginContentSize"] = r.Origin.Status, r.Origin.Size
	o["OriginDuration"] = r.ServerTook.Nanoseconds()
}
