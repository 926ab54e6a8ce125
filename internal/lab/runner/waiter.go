package runner

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"fairlead/internal/child"
)

// waiter is an output that closes seen when want has been written to it, if want
// is not empty.
type waiter struct {
	want string
	seen chan struct{}

	mu   sync.Mutex
	buf  bytes.Buffer
	done bool
}

// Write implements io.Writer.
func (w *waiter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return len(p), nil
	}
	w.buf.Write(p)
	if w.want != "" && bytes.Contains(w.buf.Bytes(), []byte(w.want)) {
		w.done = true
		close(w.seen)
	}
	return len(p), nil
}

// watch closes seen when a process listens on the TCP port in the process's
// network namespace.
func (w *waiter) watch(ctx context.Context, p *child.Process, port int) {
	if await(ctx, p, func() bool { return listens(p.Cmd.Process.Pid, port) }) {
		close(w.seen)
	}
}

// await reports whether reached becomes true before the process ends. It polls,
// because the kernel does not notify.
func await(ctx context.Context, p *child.Process, reached func() bool) bool {
	const often = 2 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-p.Done():
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// listens reads proc_pid_net(5): the local address, the remote address, and the
// state, where 0A is TCP_LISTEN.
func listens(pid, port int) bool {
	for _, family := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, family))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(table) {
			fields := bytes.Fields(line)
			if len(fields) > 3 && string(fields[3]) == "0A" && bytes.HasSuffix(fields[1], fmt.Appendf(nil, ":%04X", port)) {
				return true
			}
		}
	}
	return false
}

func (w *waiter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
