package transport

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"fairlead/internal/gateway/forwarded"
	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1/forward"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// library forwards with net/http: it speaks HTTP/2 and TLS to servers.
type library struct {
	proxy     *httputil.ReverseProxy
	transport *http.Transport
	// upgrades, if not nil, forwards the requests that ask for another protocol.
	upgrades *forward.Pool
}

// defaultFlush is how long parts of a response wait for others.
const defaultFlush = 100 * time.Millisecond

// closing is a transport that can close the body of a request when a server resets the request. ReverseProxy would
// hide that: the transport would wait until the client sends more.
type closing struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t closing) RoundTrip(r *http.Request) (*http.Response, error) {
	if body := resultOf(r).request; body != nil && r.Body != nil {
		r.Body = body
	}
	return t.Transport.RoundTrip(r)
}

// newLibrary returns a forwarder to the server. Parts of a response are sent on after the time flush, at once if
// it is negative.
func newLibrary(to *url.URL, t *gateway.ServersTransport, flush time.Duration) (*library, error) {
	transport, err := HTTP(t)
	if err != nil {
		return nil, err
	}
	target := *to
	if to.Scheme == "h2c" {
		target.Scheme = "http"
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	l := &library{transport: transport}
	if to.Scheme == "https" {
		l.upgrades = newUpgrades(to, t, transport.TLSClientConfig)
	}
	l.proxy = &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { rewrite(p, &target) },
		ModifyResponse: func(answer *http.Response) error {
			resultOf(answer.Request).follow(answer)
			return nil
		},
		Transport:     closing{transport},
		FlushInterval: cmp.Or(flush, defaultFlush),
		BufferPool:    buffers,
		ErrorLog:      log.New(io.Discard, "", 0), // the result has the errors
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			resultOf(r).err = err
		},
	}
	return l, nil
}

// rewrite addresses the request to the server. The headers about the client are
// prepared already; ReverseProxy has removed them.
func rewrite(p *httputil.ProxyRequest, to *url.URL) {
	out := p.Out
	out.URL.Scheme, out.URL.Host = to.Scheme, to.Host
	out.URL.RawQuery = p.In.URL.RawQuery // ReverseProxy leaves out parameters with a semicolon
	for _, name := range forwarded.Names {
		if values, ok := p.In.Header[name]; ok {
			out.Header[name] = values
		}
	}
	out.Host = resultOf(p.In).host
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // net/http would add its own
	}
}

// Forward implements forwarder.
func (l *library) Forward(w http.ResponseWriter, r *http.Request, host string) error {
	if l.upgrades != nil && forward.Upgrades(r) {
		return l.upgrades.Forward(w, r, host)
	}
	res := &result{Context: r.Context(), host: host}
	return res.of(func(r *http.Request) { l.proxy.ServeHTTP(recoveringWriter{w}, r) }, w, r)
}

// recoveringWriter is a response. The library flushes it, and writes interim responses, on goroutines that
// do not recover.
type recoveringWriter struct{ http.ResponseWriter }

// Unwrap lets http.ResponseController find the methods of the connection.
func (w recoveringWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w recoveringWriter) WriteHeader(status int) {
	if status < http.StatusOK {
		defer goroutine.Recover("write an interim response")
	}
	w.ResponseWriter.WriteHeader(status)
}

// FlushError is for http.ResponseController.
func (w recoveringWriter) FlushError() (err error) {
	err = goroutine.ErrPanic // if it panics
	defer goroutine.Recover("send a part of a response")
	err = http.NewResponseController(w.ResponseWriter).Flush()
	return err
}

// Close closes the idle connections.
func (l *library) Close() {
	l.transport.CloseIdleConnections()
	if l.upgrades != nil {
		l.upgrades.Close()
	}
}

// expectWait is how long a request with "Expect: 100-continue" waits for an interim response before its
// body is sent (RFC 9110 10.1.1). Without it, the client would be asked for a body that the server does
// not want.
const expectWait = time.Second

// HTTP returns the transport of net/http with the settings.
func HTTP(t *gateway.ServersTransport) (*http.Transport, error) {
	config, err := TLS(t)
	if err != nil {
		return nil, err
	}
	timeouts := t.ForwardingTimeouts
	dialer := &net.Dialer{Timeout: cmp.Or(timeouts.DialTimeout, 30*time.Second)}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		TLSClientConfig:       config,
		ForceAttemptHTTP2:     !t.DisableHTTP2,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   cmp.Or(t.MaxIdleConnsPerHost, 200),
		IdleConnTimeout:       cmp.Or(timeouts.IdleConnTimeout, 90*time.Second),
		ResponseHeaderTimeout: timeouts.ResponseHeaderTimeout,
		ExpectContinueTimeout: expectWait,
		HTTP2: &http.HTTP2Config{SendPingTimeout: timeouts.ReadIdleTimeout,
			PingTimeout: timeouts.PingTimeout},
		WriteBufferSize: bufferSize,
		ReadBufferSize:  bufferSize,
	}, nil
}

// TLS returns the parameters of TLS to servers.
func TLS(t *gateway.ServersTransport) (*tls.Config, error) {
	if t.PeerCertURI != "" {
		return nil, errors.New("peerCertURI is not supported: verify servers with serverName and rootCAs")
	}
	config := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify}
	if err := tlsconfig.Limit(config, t.MinVersion, t.MaxVersion, t.CipherSuites); err != nil {
		return nil, err
	}
	for _, ca := range t.RootCAs {
		pem, err := tlsconfig.PEM(ca)
		if err != nil {
			return nil, err
		}
		if config.RootCAs == nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("root CA %s: it has no PEM certificate", tlsconfig.NameOf(ca))
		}
	}
	for _, c := range t.Certificates {
		pair, err := tlsconfig.KeyPair(c)
		if err != nil {
			return nil, err
		}
		config.Certificates = append(config.Certificates, pair)
	}
	return config, nil
}
