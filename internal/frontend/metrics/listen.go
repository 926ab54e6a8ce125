package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/frontend/admin"
)

// unixPrefix marks an address as the path of a unix socket.
const unixPrefix = "unix:"

// Check refuses an address where metrics must not be, or that is none: they are
// for unix:PATH, which only root and, if named, a group may use, or for a
// loopback address and port. Empty is fine.
func Check(address, group string) error {
	path, isUnix := strings.CutPrefix(address, unixPrefix)
	switch {
	case isUnix && path == "":
		return errors.New("metrics on unix: the path is missing: name one, e.g. unix:/run/fairlead/metrics.sock")
	case group != "" && !isUnix:
		return errors.New("a group for metrics may only be named with a unix socket: use unix:PATH")
	case address == "" || isUnix:
		return nil
	}
	_, err := parseLoopback(address)
	return err
}

// Listen listens at an address that Check approves.
func Listen(address, group string) (net.Listener, error) {
	if err := Check(address, group); err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return listenUnix(path, group)
	}
	at, err := parseLoopback(address)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("metrics on %s: %w", address, err)
	}
	return l, nil
}

// parseLoopback reads a loopback address and port.
func parseLoopback(address string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(strings.Replace(address, "localhost:", "127.0.0.1:", 1))
	if err != nil {
		if strings.HasPrefix(address, ":") {
			return at, openToOthers(address)
		}
		return at, fmt.Errorf("metrics on %q: this is neither unix:PATH nor a loopback address and port such as 127.0.0.1:9464", address)
	}
	if !at.Addr().IsLoopback() {
		return at, openToOthers(address)
	}
	return at, nil
}

func openToOthers(address string) error {
	return fmt.Errorf("metrics on %s: other hosts could read them, without TLS or a credential: use unix:PATH or a loopback address such as 127.0.0.1:9464, and let a server with TLS stand before it", address)
}

// listenUnix makes the socket.
func listenUnix(path, group string) (net.Listener, error) {
	gid := -1
	if group != "" {
		var err error
		if gid, err = groupID(group); err != nil {
			return nil, fmt.Errorf("metrics on unix:%s: %w", path, err)
		}
	}
	l, err := admin.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if gid >= 0 {
		if err := errors.Join(os.Chown(path, -1, gid), os.Chmod(path, 0o660)); err != nil {
			return nil, errors.Join(fmt.Errorf("metrics on unix:%s: let group %s in: %w", path, group, err), l.Close())
		}
	}
	return socket{l, path}, nil
}

// socket is a unix socket that goes when it is closed.
type socket struct {
	net.Listener
	path string
}

// Close implements net.Listener.
func (s socket) Close() error {
	if err := s.Listener.Close(); err != nil {
		return err
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func groupID(name string) (int, error) {
	if id, err := strconv.Atoi(name); err == nil && id >= 0 {
		return id, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no group %q: %w", name, err)
	}
	return strconv.Atoi(g.Gid)
}

// loopbackOnly refuses a request whose Host header names neither localhost nor a
// loopback address. A web page whose name its owner makes resolve to 127.0.0.1
// (DNS rebinding) is read by a browser of this host, which sends that name. A client
// of HTTP/1.0 sends no Host, and no browser is one.
func loopbackOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if loopback := err == nil && a.Unmap().IsLoopback(); host != "" && !loopback && !strings.EqualFold(host, "localhost") {
			http.Error(w, "metrics are for requests to localhost or a loopback address only", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// The bounds of a request.
const (
	maxHeader   = 16 << 10
	headerLimit = 5 * time.Second
	idleLimit   = 2 * time.Minute
)

// Serve answers until ctx ends. On TCP it refuses requests for names of other
// hosts.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	if _, tcp := l.Addr().(*net.TCPAddr); tcp {
		h = loopbackOnly(h)
	}
	err := admin.ServeUntil(ctx, l, &http.Server{Handler: h, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerLimit, ReadTimeout: headerLimit,
		WriteTimeout: scrapeLimit + headerLimit, IdleTimeout: idleLimit})
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
