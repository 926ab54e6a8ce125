package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
)

// pauseOrphan stops a process that is not a child of this one, until goOn is called.
func pauseOrphan(t *testing.T, pid int) (goOn func()) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn = func() { _ = unix.Kill(pid, unix.SIGCONT) }
	t.Cleanup(goOn)
	for deadline := time.Now().Add(patience); ; {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && strings.Contains(string(text), "State:\tT") {
			return goOn
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("process %d does not stop: %v", pid, err)
		}
	}
}

// TestSlowPredecessorIsNotForgotten: while the old proxy is stopped, changes of the ports
// do not wait for it. When it runs again it ends the connections of all ports that were
// removed meanwhile, also of one that is there again, and follows later changes.
func TestSlowPredecessorIsNotForgotten(t *testing.T) {
	at := keeping(t)
	target := serveTCP(t, "127.0.0.1", echo)
	var cfg Config
	for port := range uint16(4) {
		cfg.Listeners = append(cfg.Listeners, published(model.TCP, "127.0.0.1", 8001+port, target))
	}
	pid, kill := keptBy(t, anotherProgram(t), at, cfg)
	kill()
	var conns []*net.TCPConn
	for port := range cfg.Listeners {
		conns = append(conns, dial(t, fmt.Sprint("127.0.0.1:", 8001+port)))
		exchange(t, conns[port], "with the old one")
	}
	p := found(t, at)
	of := func(ports ...int) (some Config) {
		for _, i := range ports {
			some.Listeners = append(some.Listeners, cfg.Listeners[i])
		}
		return some
	}
	goOn := pauseOrphan(t, pid)
	set(t, p, of(1, 2, 3))
	set(t, p, of(2, 3))
	set(t, p, of(1, 2, 3))
	goOn()
	reset := func(i int) {
		t.Helper()
		if _, err := io.ReadAll(conns[i]); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection to removed port %d: %v", 8001+i, err)
		}
	}
	reset(0)
	reset(1)
	set(t, p, of(1, 3))
	reset(2)
	exchange(t, conns[3], "still with the old one")
	set(t, p, Config{})
	reset(3)
}

// TestPredecessorOfAPredecessorIsNotForgotten: two handovers in a row. The second proxy
// has no connections of its own, but the first one has, and follows later changes.
func TestPredecessorOfAPredecessorIsNotForgotten(t *testing.T) {
	at := keeping(t)
	target := serveTCP(t, "127.0.0.1", echo)
	cfg := oneTCP("127.0.0.1", 8001, target)
	cfg.Listeners = append(cfg.Listeners, published(model.TCP, "127.0.0.1", 8002, target))
	first, kill := keptBy(t, anotherProgram(t), at, cfg)
	kill()
	c := dial(t, "127.0.0.1:8001")
	exchange(t, c, "with the first one")
	second, kill := keptBy(t, anotherProgram(t), at, cfg)
	kill()
	ended := []int{watch(t, first), watch(t, second)}
	p := found(t, at)
	exchange(t, c, "still with the first one")
	cfg.Listeners = cfg.Listeners[1:]
	set(t, p, cfg)
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection to a removed port: %v", err)
	}
	for _, process := range ended {
		waitFD(t, process)
	}
}
