package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// waitingHost is a host whose clients answer when the test permits it. The reset of clients begins when a step has
// removed a service.
type waitingHost struct {
	*kernel.Host
	removed atomic.Bool
	// begun is closed when the reset begins, which then waits until permitted is closed.
	begun, permitted chan struct{}
}

// Apply implements engine.Kernel.
func (h *waitingHost) Apply(ops []plan.Op) (int, error) {
	n, err := h.Host.Apply(ops)
	for _, op := range ops {
		if _, service := op.Object.(plan.NFTService); service && op.Del {
			h.removed.Store(true)
		}
	}
	return n, err
}

// TCP implements engine.Flows.
func (h *waitingHost) TCP() *rawtcp.Handle {
	if h.removed.CompareAndSwap(true, false) {
		close(h.begun)
		<-h.permitted
	}
	return h.Host.TCP()
}

// visit makes a sandbox, and opens a connection from it to the service.
func (w *world) visit(service string) (client watchedSandbox, conn net.Conn) {
	w.Helper()
	client = w.watchedSandbox()
	w.attach(to(client))
	conn, err := place.Dial(client.in, "tcp", service, place.Timeout)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprint(conn, "a"); err != nil {
		w.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		w.Fatal(err)
	}
	return client, conn
}

// isReset fails the test unless a client that only reads is reset.
func (w *world) isReset(conn net.Conn) {
	w.Helper()
	err := conn.SetReadDeadline(time.Now().Add(place.Timeout))
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		w.Errorf("the client is not reset: %v", err)
	}
}

// hasVirtual reports whether the host has the address of the service.
func (w *world) hasVirtual() bool {
	w.Helper()
	return w.sh("ip route show table local 192.0.2.10") != ""
}

// attachesSoon fails the test if another request waits for the client of a removed service.
func (w *world) attachesSoon() {
	w.Helper()
	request := to(w.watchedSandbox())
	attached := make(chan error, 1)
	go func() { _, err := w.Attach(context.Background(), request); attached <- err }()
	select {
	case err := <-attached:
		if err != nil {
			w.Error(err)
		}
	case <-time.After(place.Timeout / 4): // only a failing test waits for it
		w.Error("an attach waits for the client of a removed service")
	}
}

// TestSilentClient removes a service whose client has not answered yet. The request waits for the client, and other
// requests do not. A client that answers is reset.
func TestSilentClient(t *testing.T) {
	for name, silent := range map[string]bool{"answers": false, "never answers": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			host := &waitingHost{Host: w.host, begun: make(chan struct{}), permitted: make(chan struct{})}
			w.wrap = host
			w.start()
			w.network(lan)
			w.sh("ip link set lo up; ip addr add 10.0.0.2/32 dev lo")
			place.Serve(w, w.host.Do, "10.0.0.2:8080", place.Echo)
			v := site("web", at("10.0.0.2", 8080))
			v.Plane = model.PlaneNFT
			w.serve(v)
			client, conn := w.visit("192.0.2.10:80")
			if silent {
				client.sh(t, "nft 'add table inet mute;"+
					" add chain inet mute out { type filter hook output priority 0; policy drop; }'")
			}
			w.removeWhile(host, func() {
				w.attachesSoon()
				if !w.hasVirtual() {
					t.Error("the virtual address was removed before the client has answered")
				}
			})
			if w.hasVirtual() {
				t.Error("the virtual address was not removed")
			}
			if !silent {
				w.isReset(conn)
			}
			if !slices.ContainsFunc(w.Events(), func(e api.Event) bool {
				return e.Kind == api.ClientsReset && e.Object == "service web real 10.0.0.2:8080" &&
					strings.Contains(e.Detail, "did not answer") == silent
			}) {
				t.Errorf("no event reports the reset: %+v", w.Events())
			}
		})
	}
}

// removeWhile removes the service, and calls f before its client can answer.
func (w *world) removeWhile(host *waitingHost, f func()) {
	w.Helper()
	removed := make(chan error, 1)
	go func() { _, err := w.RemoveService("web", false); removed <- err }()
	select {
	case <-host.begun:
	case err := <-removed:
		w.Fatalf("the service was removed without a reset of its client: %v", err)
	case <-time.After(place.Timeout):
		w.Fatal("timeout: no client is reset")
	}
	f()
	select {
	case err := <-removed:
		w.Errorf("the removal did not wait for the client: %v", err)
	default:
	}
	close(host.permitted)
	if err := <-removed; err != nil {
		w.Fatal(err)
	}
}
