package program

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/escape"
)

// Output keeps what a program prints. Its zero value is ready for use.
type Output struct {
	want string
	seen chan struct{}

	mu   sync.Mutex
	buf  bytes.Buffer
	done bool
}

// Expect returns an output that closes the channel of Seen when the text has been
// written to it. If the text is empty, only Watch closes the channel.
func Expect(text string) *Output { return &Output{want: text, seen: make(chan struct{})} }

// Seen returns the channel that is closed when what Expect or Watch waits for has
// happened.
func (o *Output) Seen() <-chan struct{} { return o.seen }

// Write implements io.Writer. It does not fail.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return len(p), nil
	}
	o.buf.Write(p)
	if o.want != "" && bytes.Contains(o.buf.Bytes(), []byte(o.want)) {
		o.done = true
		close(o.seen)
	}
	return len(p), nil
}

// Watch closes the channel of Seen when a process listens on the TCP port in the
// process's network namespace.
func (o *Output) Watch(ctx context.Context, p *child.Process, port int) {
	if Await(ctx, p, func() bool { return Listens(p.Cmd.Process.Pid, port) }) {
		close(o.seen)
	}
}

// Await reports whether reached becomes true before the process ends. It polls,
// because the kernel does not notify. It polls less often the longer it waits, and the
// longer a poll takes, because some ask the kernel for all sockets.
func Await(ctx context.Context, p *child.Process, reached func() bool) bool {
	const often, rarely = 2 * time.Millisecond, 20 * time.Millisecond
	for pause := often; ; pause = min(pause*5/4, rarely) {
		began := time.Now()
		if reached() {
			return true
		}
		select {
		case <-time.After(max(pause, min(4*time.Since(began), 2*rarely))):
		case <-p.Done():
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// Listens reports whether processes listen on all of the TCP ports in the network
// namespace of the process with that id. It reads proc_pid_net(5): the local
// address, the remote address, and the state, where 0A is TCP_LISTEN. A reading takes
// milliseconds, because the kernel searches the connections of all namespaces.
func Listens(pid int, ports ...int) bool {
	missing := map[string]bool{}
	for _, port := range ports {
		missing[fmt.Sprintf("%04X", port)] = true
	}
	for _, family := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, family))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(table) {
			fields := bytes.Fields(line)
			if len(fields) > 3 && string(fields[3]) == "0A" {
				_, port, _ := bytes.Cut(fields[1], []byte(":"))
				delete(missing, string(port))
			}
		}
		if len(missing) == 0 {
			return true
		}
	}
	return false
}

// Text returns what has been printed, up to the expected text.
func (o *Output) Text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Line returns what was written as one line, for an error.
func (o *Output) Line() string { return escape.OneLine(o.Text()) }
