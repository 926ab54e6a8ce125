package process

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/proxy"
	"fairlead/test/place"
	"fairlead/test/process"

	"golang.org/x/sys/unix"
)

// kills returns how often to kill the daemon: FAIRLEAD_KILLS, or 5.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FAIRLEAD_KILLS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestProxySurvivesKilledDaemons kills the daemon repeatedly under load. No connection
// may end, and none may fail.
func TestProxySurvivesKilledDaemons(t *testing.T) {
	h := newHouse(t)
	d := h.daemon()
	h.publish()
	pid := h.pidOfProxy()
	var open net.Conn
	if err := h.ns.Do(func() (err error) { open, err = dial(port8080); return err }); err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	load := h.load()
	for i := range kills(t) {
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := echoes(open); err != nil {
			t.Fatalf("open connection while no daemon runs: %v", err)
		}
		if d = h.daemon(); i == 2 {
			d.stop(t)
			d = h.daemon()
		}
		if err := echoes(open); err != nil {
			t.Fatalf("open connection: %v", err)
		}
	}
	load.end(t, "under kill -9")
	if now := h.pidOfProxy(); now != pid {
		t.Errorf("the proxy's PID is %d, want %d", now, pid)
	}
	d.stop(t)
	h.opt.TearDown = true
	h.daemon().stop(t)
	if now := h.pidOfProxy(); now != 0 {
		t.Errorf("the proxy %d runs after --teardown", now)
	}
	if err := echoes(open); err == nil {
		t.Error("the connection is open after --teardown")
	}
	if _, err := os.Stat(filepath.Join(h.opt.Run, "proxy.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the proxy's socket: %v", err)
	}
}

// TestKilledProxyIsReplaced checks that the ports open again after the proxy was
// killed.
func TestKilledProxyIsReplaced(t *testing.T) {
	h := newHouse(t)
	d := h.daemon()
	h.publish()
	for range 3 {
		pid := h.pidOfProxy()
		if pid == 0 {
			t.Fatal("the proxy does not run")
		}
		old, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		err = unix.PidfdSendSignal(old, unix.SIGKILL, nil, 0)
		if err = errors.Join(err, wait(old), unix.Close(old)); err != nil { // it may answer until it has ended
			t.Fatal(err)
		}
		h.opens(port8080)
		t.Logf("open again after %v", time.Since(killed))
		if now := h.pidOfProxy(); now == pid {
			t.Errorf("the proxy's PID is still %d", pid)
		}
	}
	// Without publishes the proxy ends with the daemon, or before it on a busy machine: after 10 s without ports.
	gone, err := unix.PidfdOpen(h.pidOfProxy(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(gone)
	if _, err := admin.Detach.Do(context.Background(), admin.NewClient(h.opt.Socket),
		api.DetachRequest{Network: "lan", Sandbox: h.pid}); err != nil {
		t.Fatal(err)
	}
	d.stop(t)
	if err := wait(gone); err != nil {
		t.Errorf("proxy without ports, after the end of the daemon: %v", err)
	}
}

// TestSandboxEndsWhileNoDaemonRuns checks that its ports stay open until the next
// daemon starts, and are closed then.
func TestSandboxEndsWhileNoDaemonRuns(t *testing.T) {
	h := newHouse(t)
	d := h.daemon()
	h.publish()
	if err := errors.Join(d.Kill(), h.end()); err != nil {
		t.Fatal(err)
	}
	if inUse := h.inUse(); len(inUse.Listeners) == 0 {
		t.Error("the proxy has closed its ports before a daemon started")
	}
	h.daemon()
	// A daemon answers requests before it has looked at its sandboxes.
	deadline := time.Now().Add(place.Timeout)
	for inUse := h.inUse(); len(inUse.Listeners)+len(inUse.Reservations) != 0; inUse = h.inUse() {
		if time.Now().After(deadline) {
			t.Fatalf("the proxy's configuration is %+v, want none", inUse)
		}
		time.Sleep(time.Millisecond) // the processes need the CPU
	}
}

// inUse returns the proxy's configuration.
func (h *house) inUse() proxy.Config {
	h.Helper()
	p := h.proxy()
	if p == nil {
		return proxy.Config{}
	}
	inUse, err := p.CurrentConfig(context.Background())
	if err := errors.Join(err, p.Part()); err != nil {
		h.Error(err)
	}
	return inUse
}

// TestPortTakenFromAKilledProxy checks that the other ports open if another process
// has one of them, and that this one opens as soon as it is free.
func TestPortTakenFromAKilledProxy(t *testing.T) {
	h := newHouse(t)
	d := h.daemon()
	h.publish()
	pid := h.pidOfProxy()
	ended, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ended)
	goOn := process.Pause(t, d.Cmd.Process.Pid)
	if err := errors.Join(unix.Kill(pid, unix.SIGKILL), wait(ended)); err != nil {
		t.Fatal(err)
	}
	var thief net.Listener
	if err := h.ns.Do(func() (err error) { thief, err = net.Listen("tcp", port8081); return err }); err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	goOn()
	h.opens(port8080)
	thief.Close()
	h.opens(port8081)
	h.opens(port8080)
}

// wait waits until the process of a pidfd has ended.
func wait(pidfd int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(place.Timeout.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && n == 0:
			return errors.New("the process still runs")
		default:
			return err
		}
	}
}
