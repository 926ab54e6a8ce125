package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/child"
)

// parentRole is a process that starts a proxy, prints its pid and waits to
// be killed.
const parentRole = "proxy-parent"

func intermediateParent() int {
	p, err := Start(context.Background(), child.Place{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(p.PID())
	select {}
}

func TestProxyDiesWithItsParent(t *testing.T) {
	cmd := child.Self(parentRole)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	parent, err := child.Start(context.Background(), cmd, child.Place{})
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(proxy)
	_ = parent.Kill()
	waitFD(t, proxy)
}

// waitFD waits until the process of a pidfd has ended.
func waitFD(t *testing.T, pidfd int) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(patience/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("the process still runs (%v)", err)
		}
		return
	}
}

func TestClosedControlSocketEndsProxy(t *testing.T) {
	p := newProxy(t, Role)
	p.control.Close()
	if err := p.process.Wait(); err != nil {
		t.Fatalf("proxy ended with %v, want a clean exit", err)
	}
}

func TestCallsAfterEndSayWhatToDo(t *testing.T) {
	p := newProxy(t, Role)
	if err := p.process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Set(t.Context(), Config{}); !errors.Is(err, errStopped) {
		t.Errorf("Set: %v", err)
	}
	if _, err := p.Stats(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("Stats: %v", err)
	}
}

func TestCancelledCallReturns(t *testing.T) {
	p := newProxy(t, Role)
	stopped(t, p, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := p.Stats(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	stats(t, p)
}
