package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/unixsock"
)

// Limits of a request. The write limit is long because an attachment with DHCP waits
// for the DHCP servers. A Spec may be larger than maxBody, but at most maxLarge such
// requests are read at the same time: others wait.
const (
	maxBody     = 1 << 20
	maxSpec     = api.MaxSpec
	maxLarge    = 2
	maxHeader   = 16 << 10
	headerLimit = 5 * time.Second
	readLimit   = 10 * time.Second
	writeLimit  = 5 * time.Minute
	idleLimit   = time.Minute
)

// Listen creates the socket, which only its owner can use. It replaces the socket of
// an earlier daemon; the caller must make sure that no other daemon runs.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	// The socket is bound under another name and renamed after its mode is set.
	// Thus no other user can connect meanwhile.
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close(), os.Remove(fresh))
	}
	return l, nil
}

// Serve answers requests until ctx ends, as ServeUntil does. Each caller has at most
// perPeer connections.
func Serve(ctx context.Context, l *net.UnixListener, h http.Handler, perPeer int) error {
	err := ServeUntil(ctx, bound(l, MaxConns, perPeer), &http.Server{
		Handler: h, ConnContext: withPeer, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerLimit, ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit,
	})
	if err != nil {
		return fmt.Errorf("serve the admin API: %w", err)
	}
	return nil
}

// peer is the key of the caller's credentials in a connection's context.
type peer struct{}

// withPeer adds the caller's credentials and the connection to its context.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if bounded, ok := conn.(*slotted); ok {
		ctx = context.WithValue(ctx, follower{}, bounded)
	}
	unixConn, ok := conn.(syscall.Conn)
	if !ok {
		return ctx
	}
	who, err := unixsock.PeerOf(unixConn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peer{}, who)
}

// follower is the key of the connection in its context.
type follower struct{}

// CallerPID returns the PID of the process that connected, or 0 if it is unknown or
// in a PID namespace that is not visible.
func CallerPID(ctx context.Context) int {
	who, _ := ctx.Value(peer{}).(unixsock.Process)
	return int(who.Pid)
}

// allowed reports whether the caller is root, or the user of the daemon.
func allowed(ctx context.Context) bool {
	who, known := ctx.Value(peer{}).(unixsock.Process)
	return known && who.Trusted()
}

// Handler answers the requests of the API.
func Handler(d Daemon) http.Handler {
	mux := http.NewServeMux()
	attachmentHandlers(mux, d.Attachments)
	publishHandlers(mux, d.Publishes)
	networkHandlers(mux, d.Networks)
	serviceHandlers(mux, d.Services)
	specHandlers(mux, d.Specs)
	eventHandlers(mux, d.Events)
	statsHandlers(mux, d.Stats)
	gatewayHandlers(mux, d.Gateway)
	optional(mux, d.History, historyHandlers)
	optional(mux, d.Cluster, clusterHandlers)
	optional(mux, d.ClusterTokens, clusterTokenHandlers)
	optional(mux, d.ClusterNetworks, clusterNetworkHandlers)
	optional(mux, d.ClusterAddresses, clusterAddressHandlers)
	optional(mux, d.ClusterBGP, clusterBGPHandlers)
	optional(mux, d.ClusterServices, clusterServiceHandlers)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &api.Fault{Code: api.NotFound, Err: fmt.Errorf("%s %s: this daemon does not support the "+
			"request", r.Method, r.URL.Path)})
	})
	return RootOnly(mux)
}

// optional registers the handlers of calls that are not nil.
func optional[Calls any](mux *http.ServeMux, calls Calls, register func(*http.ServeMux, Calls)) {
	if any(calls) != nil {
		register(mux, calls)
	}
}

// RootOnly refuses callers that are neither root nor the daemon's user. It works
// only under Serve, which records the caller.
func RootOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(r.Context()) {
			refuse(w, &api.Fault{Code: Forbidden, Err: errors.New("only root may use this socket: run the " +
				"command as root, e.g. with sudo")})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// post registers fn as the handler of a path.
func post[Request, Result any](mux *http.ServeMux, path string, fn func(context.Context, Request) (Result, error)) {
	postUpTo(mux, path, maxBody, fn)
}

// postUpTo is post with another limit for the size of the request.
func postUpTo[Request, Result any](mux *http.ServeMux, path string, limit int64,
	fn func(context.Context, Request) (Result, error)) {
	large := make(chan struct{}, maxLarge)
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if n := r.ContentLength; limit > maxBody && (n < 0 || n > maxBody) {
			select {
			case large <- struct{}{}:
				defer func() { <-large }()
			case <-r.Context().Done():
				return
			}
			// The time begins when the request is read. It fails only with the connection.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readLimit))
		}
		var request Request
		if err := decode(http.MaxBytesReader(w, r.Body, limit), &request); err != nil {
			if errors.As(err, new(*http.MaxBytesError)) {
				err = fmt.Errorf("it is larger than %d bytes", limit)
			}
			refuse(w, &api.Fault{Code: api.Invalid, Err: fmt.Errorf("read request: %w", err)})
			return
		}
		result, err := fn(r.Context(), request)
		if err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusOK, result)
	})
}

var statuses = map[api.Code]int{
	api.Invalid: http.StatusBadRequest, api.NotFound: http.StatusNotFound, Forbidden: http.StatusForbidden,
	api.Conflict: http.StatusConflict, api.PortTaken: http.StatusConflict, api.Failed: http.StatusInternalServerError,
}

func refuse(w http.ResponseWriter, err error) {
	code := api.CodeOf(err)
	var mistakes api.Mistakes
	_ = errors.As(err, &mistakes)
	answer(w, statuses[code], Error{code, escape.Error(err), mistakes})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have closed the connection
}
