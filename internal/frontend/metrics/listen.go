package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"fairlead/internal/frontend/admin"

	"golang.org/x/net/netutil"
)

// unixPrefix marks an address as the path of a unix socket.
const unixPrefix = "unix:"

// Check returns an error unless the address is unix:PATH, a loopback address and
// port, or empty. Only root and the given group can use a unix socket. A group is
// allowed only with unix:PATH.
func Check(address, group string) error {
	path, isUnix := strings.CutPrefix(address, unixPrefix)
	switch {
	case isUnix && path == "":
		return errors.New("serve metrics on unix: the path is missing: name one, e.g. unix:/run/fairlead/metrics.sock")
	case group != "" && !isUnix:
		return errors.New("serve metrics to a group: this needs a unix socket: use unix:PATH")
	case address == "" || isUnix:
		return nil
	}
	_, err := parseLoopback(address)
	return err
}

// Listen listens at the address. It returns the errors of Check.
func Listen(address, group string) (net.Listener, error) {
	if err := Check(address, group); err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		l, err := admin.ListenFor(path, group)
		if err != nil {
			return nil, fmt.Errorf("serve metrics: %w", err)
		}
		return l, nil
	}
	at, err := parseLoopback(address)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("serve metrics on %s: %w", address, err)
	}
	return l, nil
}

// parseLoopback parses a loopback address and port.
func parseLoopback(address string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(strings.Replace(address, "localhost:", "127.0.0.1:", 1))
	if err != nil {
		if strings.HasPrefix(address, ":") {
			return at, openToOthers(address)
		}
		return at, fmt.Errorf("serve metrics on %q: it is neither unix:PATH nor a loopback address and port such as "+
			"127.0.0.1:9464", address)
	}
	if !at.Addr().IsLoopback() {
		return at, openToOthers(address)
	}
	return at, nil
}

func openToOthers(address string) error {
	return fmt.Errorf("serve metrics on %s: other hosts could read them without TLS or a credential: use unix:PATH "+
		"or a loopback address such as 127.0.0.1:9464, with a TLS proxy in front of it", address)
}

// loopbackOnly refuses requests whose Host header names neither localhost nor a
// loopback address. This prevents DNS rebinding: an attacker's web site resolves its
// name to 127.0.0.1, and a browser on this host sends requests with that name. Requests
// without a Host header (HTTP/1.0) are accepted, because browsers always send one.
func loopbackOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if loopback := err == nil && a.Unmap().IsLoopback(); host != "" && !loopback &&
			!strings.EqualFold(host, "localhost") {
			http.Error(w, "metrics are served only to requests for localhost or a loopback address",
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Limits of all connections and of a request.
const (
	maxConns    = 64
	maxHeader   = 16 << 10
	headerLimit = 5 * time.Second
	idleLimit   = 2 * time.Minute
)

// Serve serves until ctx ends. On TCP it refuses requests whose Host header names
// neither localhost nor a loopback address. At most 64 connections are open; others wait.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	if _, tcp := l.Addr().(*net.TCPAddr); tcp {
		h = loopbackOnly(h)
	}
	err := admin.ServeUntil(ctx, netutil.LimitListener(l, maxConns), &http.Server{Handler: h,
		MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerLimit, ReadTimeout: headerLimit,
		WriteTimeout: scrapeLimit + headerLimit, IdleTimeout: idleLimit})
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
