package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/child"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

const (
	// keeperRole is a process that keeps a proxy and waits to be killed.
	keeperRole = "proxy-keeper"
	// strangerRole is a process of another user that tries to be its parent.
	strangerRole = "proxy-stranger"
)

// kept is the input of a keeper.
type kept struct {
	Socket, Errors string
	Hold           Config
}

func keeper() int {
	var do kept
	err := json.NewDecoder(os.Stdin).Decode(&do)
	var p *Proxy
	if err == nil {
		p, err = Keep(context.Background(), Keeping{Socket: do.Socket, Errors: do.Errors, Log: slog.Default()})
	}
	if err == nil {
		err = p.Set(context.Background(), do.Hold)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(p.PID())
	select {}
}

func keeping(t *testing.T) Keeping {
	dir := t.TempDir()
	return Keeping{Socket: filepath.Join(dir, "s"), Errors: filepath.Join(dir, "log"),
		Log: slog.New(slog.DiscardHandler)}
}

// keptBy runs a program that keeps a proxy. It returns the proxy's process and a
// function that kills the program.
func keptBy(t *testing.T, program string, at Keeping, hold Config) (pid int, kill func()) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), child.Role+"="+keeperRole)
	text, err := json.Marshal(kept{at.Socket, at.Errors, hold})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(text)), os.Stderr
	left, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{nil, ours} // the first is where the proxy has its control socket
	out, err := cmd.StdoutPipe()
	var keeps *child.Process
	if err == nil {
		keeps, err = child.Start(context.Background(), cmd, child.Place{})
	}
	if err := errors.Join(err, ours.Close(), left.SetReadDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = keeps.Kill()
		// The proxy has closed a file that the program inherited.
		if _, err := left.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the proxy has a file of its parent open: %v", err)
		}
		left.Close()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scan := fmt.Sscan(line, &pid); scan != nil {
		t.Fatal(err, scan)
	}
	t.Cleanup(func() { _ = keeps.Kill() })
	process := watch(t, pid)
	t.Cleanup(func() { _ = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0); waitFD(t, process) })
	return pid, kill
}

// watch returns a pidfd.
func watch(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// found returns the running proxy.
func found(t *testing.T, at Keeping) *Proxy {
	t.Helper()
	p, err := Find(t.Context(), at)
	if err != nil || p == nil {
		t.Fatalf("found %v, %v", p, err)
	}
	process := watch(t, p.PID())
	t.Cleanup(func() { _ = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0); _ = p.Part(); waitFD(t, process) })
	return p
}

func currentConfig(t *testing.T, p *Proxy) Config {
	t.Helper()
	cfg, err := p.CurrentConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestKeptProxyOutlivesItsParent(t *testing.T) {
	at := keeping(t)
	cfg := oneTCP(both, 8001, serveTCP(t, "127.0.0.1", echo))
	pid, kill := keptBy(t, "/proc/self/exe", at, cfg)
	before := dial(t, "127.0.0.1:8001")
	exchange(t, before, "with a parent")
	kill()
	exchange(t, before, "without")
	exchange(t, dial(t, "[::1]:8001"), "hello")
	for range 2 {
		p := found(t, at)
		if got := currentConfig(t, p); p.PID() != pid || !reflect.DeepEqual(got, cfg) {
			t.Errorf("found %d with %+v; want %d, %+v", p.PID(), got, pid, cfg)
		}
		set(t, p, cfg)
		if err := p.Part(); err != nil {
			t.Error(err)
		}
		exchange(t, before, "and again")
	}
	if sid, err := unix.Getsid(pid); sid != pid {
		t.Errorf("the session is %d, %v; want its own", sid, err)
	}
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		if err := unix.Kill(pid, sig); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(at.Socket); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	p := found(t, at)
	exchange(t, before, "and last")
	gone := watch(t, pid)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	waitFD(t, gone)
	if _, err := os.Stat(at.Socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket: %v", err)
	}
	if p, err := Find(t.Context(), at); p != nil || err != nil {
		t.Errorf("found %v, %v after the end", p, err)
	}
}

func TestKeptProxyWithoutPortsEnds(t *testing.T) {
	at := keeping(t)
	p, err := Keep(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", echo)))
	set(t, p, Config{})
	gone := watch(t, p.PID())
	if err := p.Part(); err != nil {
		t.Fatal(err)
	}
	waitFD(t, gone)
	// The socket file that it left does not prevent a new one.
	again, err := Keep(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKeptProxyWaitsForNextSet: a proxy without ports waits for the next Set, but
// only for limits.empty. Then it ends, even if it has a parent.
func TestKeptProxyWaitsForNextSet(t *testing.T) {
	at := keeping(t)
	p, err := start(t.Context(), child.Place{}, briskRole)
	if err != nil {
		t.Fatal(err)
	}
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", echo)))
	if _, err := p.call(t.Context(), request{Keep: &keep{Socket: at.Socket}}); err != nil {
		t.Fatal(err)
	}
	exchange(t, dial(t, "127.0.0.1:8001"), "it holds something")
	set(t, p, Config{})
	<-p.Done()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestEndOfKeptProxyIsNoticed(t *testing.T) {
	at := keeping(t)
	cfg := oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", echo))
	_, kill := keptBy(t, "/proc/self/exe", at, cfg)
	kill()
	p := found(t, at)
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Set(t.Context(), cfg); !errors.Is(err, errStopped) {
		t.Errorf("Set on an ended proxy: %v", err)
	}
	again, err := Keep(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	set(t, again, cfg)
	exchange(t, dial(t, "127.0.0.1:8001"), "hello")
}

// anotherProgram returns the path of a copy of this program.
func anotherProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "old")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, text, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAnotherProgramTakesOver checks that no client is refused during a handover, and
// that open connections continue until their port is unpublished.
func TestAnotherProgramTakesOver(t *testing.T) {
	at := keeping(t)
	target := serveTCP(t, "127.0.0.1", echo)
	datagrams := serveUDP(t, "127.0.0.1:0", echoUDP)
	cfg := Config{
		Listeners: []plan.Listener{published(model.TCP, both, 8001, target), published(model.TCP, "::1", 8002, target),
			published(model.UDP, "127.0.0.1", 8003, datagrams)},
		Reservations: []plan.Reservation{
			{Proto: model.TCP, Host: netip.MustParseAddr("0.0.0.0"), Ports: model.PortRange{First: 9000, Last: 9499}},
			{Proto: model.UDP, Host: netip.MustParseAddr("10.77.0.1"),
				Ports: model.PortRange{First: 9000, Last: 9499}}},
	}
	pid, kill := keptBy(t, anotherProgram(t), at, cfg)
	kill()
	ended := watch(t, pid)
	first, second := dial(t, "127.0.0.1:8001"), dial(t, "[::1]:8002")
	client := dialUDP(t, "127.0.0.1:8003")
	exchange(t, first, "with the old one")
	exchange(t, second, "with the old one")
	ask(t, client, "old", "old")
	var stop atomic.Bool
	var load sync.WaitGroup
	for range 2 {
		load.Go(func() { echoBlocks(t, "127.0.0.1:8001", &stop, true) })
	}
	p := found(t, at)
	stop.Store(true)
	load.Wait()
	if p.PID() == pid || !reflect.DeepEqual(currentConfig(t, p), cfg) {
		t.Errorf("%d has taken over from %d, with %+v", p.PID(), pid, currentConfig(t, p))
	}
	exchange(t, first, "still with the old one")
	ask(t, client, "new", "new")
	exchange(t, dial(t, "[::1]:8001"), "with the new one")
	for _, taken := range []string{"127.0.0.1:9000", "127.0.0.1:9499"} {
		if l, err := net.Listen("tcp", taken); err == nil {
			l.Close()
			t.Errorf("another program can bind %s", taken)
		}
	}
	// Only the new proxy is found at the socket.
	if p := found(t, at); p.PID() == pid {
		t.Error("the old proxy is found")
	}
	cfg.Listeners = cfg.Listeners[1:]
	set(t, p, cfg)
	if _, err := io.ReadAll(first); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection to a removed port: %v", err)
	}
	exchange(t, second, "the other one's is there")
	second.Close()
	waitFD(t, ended)
	set(t, p, Config{})
}

func TestFailedTakeOverKeepsOldProxy(t *testing.T) {
	at := keeping(t)
	cfg := oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", echo))
	pid, kill := keptBy(t, anotherProgram(t), at, cfg)
	kill()
	at.Errors = filepath.Join(t.TempDir(), "not", "there")
	p := found(t, at)
	exchange(t, dial(t, "127.0.0.1:8001"), "hello")
	if p.PID() != pid || !reflect.DeepEqual(currentConfig(t, p), cfg) {
		t.Errorf("found %d, want %d", p.PID(), pid)
	}
}
