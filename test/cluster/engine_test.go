package cluster_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/dockerd"
	"fairlead/test/compiled"
	"fairlead/test/engines"
	"fairlead/test/place"
)

// dockerHost is a host with a Docker engine and a daemon, as users run them.
type dockerHost struct {
	testing.TB
	*dockerd.Engine
	// dir has the programs fairlead and program.
	dir    string
	daemon *child.Process
	mu     sync.Mutex
	said   strings.Builder
}

// programs builds the programs that run on hosts.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := compiled.Fairlead(filepath.Join(dir, "fairlead")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "program"),
		"../docker/testdata/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return dir
}

// dockerHosts returns hosts host1, host2 … on the LAN, with the engines whose programs are in these
// directories.
func (l *lan) dockerHosts(dir string, engine ...string) []*dockerHost {
	l.Helper()
	var all []*dockerHost
	for i, programs := range engine {
		h := &dockerHost{TB: l.T, dir: dir, Engine: engines.Start(l.T, dockerd.Options{
			Netns: l.connected(i + 1).File(), Programs: programs,
			Flags: []string{"--iptables=false", "--ip6tables=false", "--bridge=none"}})}
		h.sh("ip link set lo up; echo 1 > /proc/sys/net/ipv4/ip_forward")
		engines.Image(l.T, h.Engine, "program", filepath.Join(dir, "program"))
		h.start()
		l.Cleanup(func() {
			if l.Failed() {
				l.Logf("the output of a daemon:\n%s", h.log())
			}
		})
		all = append(all, h)
	}
	return all
}

// start starts the daemon, and waits until it is ready.
func (h *dockerHost) start() {
	h.Helper()
	cmd := h.Command(context.Background(), filepath.Join(h.dir, "fairlead"), "daemon", "--state-dir",
		"/run/fairlead-state")
	out, in, err := os.Pipe()
	if err != nil {
		h.Fatal(err)
	}
	defer in.Close()
	cmd.Stdout, cmd.Stderr = in, in
	if h.daemon, err = child.Start(context.WithoutCancel(h.Context()), cmd, child.Place{}); err != nil {
		h.Fatal(err)
	}
	p := h.daemon
	h.Cleanup(func() { _ = p.Kill() }) // if it has not ended yet
	ready := make(chan struct{})
	go h.read(out, ready)
	select {
	case <-ready:
	case <-p.Done():
		h.Fatal("the daemon has exited")
	case <-time.After(2 * place.Timeout):
		h.Fatal("timeout: the daemon is not ready")
	}
}

// read keeps the output of a daemon, and closes ready when it is.
func (h *dockerHost) read(from *os.File, ready chan<- struct{}) {
	defer from.Close()
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadString('\n')
		h.mu.Lock()
		h.said.WriteString(line)
		h.mu.Unlock()
		if strings.Contains(line, "msg=ready") {
			close(ready)
		}
		if err == io.EOF || err != nil {
			return
		}
	}
}

func (h *dockerHost) log() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said.String()
}

// kill kills the daemon.
func (h *dockerHost) kill() {
	h.Helper()
	h.end("KILL")
}

// end sends the daemon a signal, and waits until it has ended.
func (h *dockerHost) end(signal string) {
	h.Helper()
	h.sh("kill -" + signal + " $(cat /run/fairlead/pid)")
	select {
	case <-h.daemon.Done():
	case <-time.After(place.Timeout):
		h.Fatal("timeout: the daemon has not ended")
	}
}

// sh runs commands on the host, which must succeed.
func (h *dockerHost) sh(script string) string {
	h.Helper()
	out, err := h.Command(h.Context(), "sh", "-ec", script).CombinedOutput()
	if err != nil {
		h.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// fairlead runs a command, which must succeed.
func (h *dockerHost) fairlead(args string) string {
	h.Helper()
	return h.sh(filepath.Join(h.dir, "fairlead") + " " + args)
}

// docker runs Docker's CLI, which must succeed.
func (h *dockerHost) docker(args string) string {
	h.Helper()
	out, err := h.Run(h.Context(), strings.Fields(args)...)
	if err != nil {
		h.Fatal(err)
	}
	return out
}

// fails runs Docker's CLI, whose error must contain a text.
func (h *dockerHost) fails(want, args string) {
	h.Helper()
	if out, err := h.Run(h.Context(), strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
		h.Errorf("docker %s: %v, want %q; %s", args, err, want, out)
	}
}

// until waits until a command on the host prints the text.
func (h *dockerHost) until(want, script string) {
	h.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, err := h.Command(h.Context(), "sh", "-c", script).CombinedOutput()
		if strings.Contains(string(out), want) {
			return
		}
		if time.Now().After(end) {
			h.Fatalf("timeout: %s: %v, want %q in\n%s", script, err, want, out)
		}
	}
}
