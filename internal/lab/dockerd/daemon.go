package dockerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairlead/internal/child"
)

// Paths in the files of the engine's host: Socket is the engine's API socket,
// Plugins the directory where it looks for the sockets of plugins.
const (
	Socket  = "/run/docker.sock"
	Plugins = "/run/docker/plugins"
)

const pidFile = "/run/docker.pid"

// Restart starts dockerd again after Signal ended it, and waits until it answers.
// Restart gives up if dockerd logs nothing for 2 minutes. The total time has no limit,
// because dockerd may start slowly, e.g. if a plugin does not run. dockerd runs until
// Stop or until ctx ends.
func (e *Engine) Restart(ctx context.Context) error {
	limited, cancel := e.log.whileWritten(ctx, startLimit)
	defer cancel()
	return e.startDaemon(ctx, limited)
}

// Signal sends dockerd a signal that ends it, and waits until it has ended.
func (e *Engine) Signal(s syscall.Signal) error {
	b, err := os.ReadFile(e.Root() + pidFile)
	if err != nil {
		return fmt.Errorf("signal dockerd: %w", err)
	}
	pid := strings.TrimSpace(string(b))
	if out, err := e.Command(context.Background(), "kill", fmt.Sprintf("-%d", s), pid).CombinedOutput(); err != nil {
		return fmt.Errorf("signal dockerd: %w: %s", err, out)
	}
	<-e.daemon.Done()
	return nil
}

// Log returns the last output of dockerd and containerd.
func (e *Engine) Log() string { return e.log.text() }

// startDaemon starts dockerd and waits until it answers.
func (e *Engine) startDaemon(ctx, limited context.Context) error {
	flags := []string{"--config-file", "/run/dockerd.json", "--data-root", "/run/data", "--exec-root", "/run/docker",
		"--pidfile", pidFile, "--host", "unix://" + Socket, "--exec-opt", "native.cgroupdriver=cgroupfs"}
	if proxy := e.program("docker-proxy"); e.opt.Programs != "" && proxy != "docker-proxy" {
		flags = append(flags, "--userland-proxy-path", proxy)
	}
	cmd := e.Command(context.Background(), "dockerd", append(flags, e.opt.Flags...)...)
	// Allow old versions of the CLI, which use older versions of the API.
	cmd.Env = append(cmd.Env, "DOCKER_MIN_API_VERSION=1.24")
	cmd.Stdout, cmd.Stderr = &e.log, &e.log
	// Do not wait for a pipe that a shim still has open.
	cmd.WaitDelay = time.Second
	p, err := child.Start(ctx, cmd, child.Place{Cgroup: e.group})
	if err != nil {
		return err
	}
	e.daemon = p
	return e.await(limited)
}

// await waits until dockerd answers.
func (e *Engine) await(ctx context.Context) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.Root()+Socket)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if answers(ctx, client) {
			return nil
		}
		select {
		case <-tick.C:
		case <-e.daemon.Done():
			return fmt.Errorf("dockerd has ended (%w): %s", ended(e.daemon), e.log.text())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("dockerd does not answer: %s", e.log.text()), context.Cause(ctx))
		}
	}
}

// ended returns the exit status of a process as an error. The cause is in the log.
func ended(p *child.Process) error {
	if err := p.Wait(); err != nil {
		return err
	}
	return errors.New("exit status 0")
}

func answers(ctx context.Context, client *http.Client) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// tailBuffer keeps the last logSize bytes that are written to it.
type tailBuffer struct {
	mu  sync.Mutex
	buf []byte
	// silence ends a context after limit without a write; nil if there is none.
	silence *time.Timer
	limit   time.Duration
}

// logSize is the number of bytes that a tailBuffer keeps.
const logSize = 8 << 10

// Write implements io.Writer.
func (l *tailBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silence != nil {
		l.silence.Reset(l.limit)
	}
	l.buf = append(l.buf, p...)
	if len(l.buf) > 2*logSize {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-logSize:]...)
	}
	return len(p), nil
}

// whileWritten returns a context that ends when nothing was written for limit.
func (l *tailBuffer) whileWritten(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit, l.silence = limit, time.AfterFunc(limit, func() { cancel(fmt.Errorf("nothing was logged for %v", limit)) })
	return ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.silence.Stop()
		l.silence = nil
		cancel(nil)
	}
}

func (l *tailBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.TrimSpace(l.buf[max(0, len(l.buf)-logSize):]))
}
