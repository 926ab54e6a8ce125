package soak_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/topology"
	"fairlead/test/compiled"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// shortSwaps is how many upgrades the test makes if FAIRLEAD_SWAPS does not say it.
const shortSwaps = 2

// exchanges is how many requests each load completes between two upgrades.
const exchanges = 10

// declaredGateway has a TCP router to the sandbox web.
const declaredGateway = `
gateway:
  entryPoints:
    stream: {address: ":7006"}
  tcp:
    routers:
      stream: {rule: HostSNI("*"), entryPoints: [stream], service: web}
    services:
      web:
        loadBalancer:
          servers: [{address: "172.30.0.2:80"}]
`

// swapped is a host whose daemon is replaced by one of another program file, as an upgrade of the package does.
type swapped struct {
	*testing.T
	w *world
	// dir has the daemon's directories and the program files.
	dir     string
	program string
	daemon  *child.Process
}

// TestUpgradesUnderLoad replaces the daemon by one of another program file while connections are open and others are
// opened via each publish mode, each data plane and the gateway. None may be lost.
//
// FAIRLEAD_SWAPS sets the number of upgrades. FAIRLEAD_SWAP_PROGRAMS names the files of two versions, separated by a
// colon; by default both files are of this version. If the second version has another format of the state, only the
// first upgrade can succeed.
func TestUpgradesUnderLoad(t *testing.T) {
	swaps, long := shortSwaps, false
	if text := os.Getenv("FAIRLEAD_SWAPS"); text != "" {
		var err error
		long = true
		if swaps, err = strconv.Atoi(text); err != nil {
			t.Fatalf("read FAIRLEAD_SWAPS: %v", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	s := &swapped{T: t, w: w, dir: t.TempDir()}
	programs := s.programs()
	s.start(programs[0])
	t.Cleanup(s.end)
	s.setUp()
	loads := s.loads(long)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, l := range loads {
		l.begin(ctx, &running)
	}
	for i := range swaps {
		s.await(loads)
		s.stop()
		s.start(programs[(i+1)%2])
	}
	s.await(loads)
	stop()
	running.Wait()
	for _, l := range loads {
		l.wrongs.report(t)
		t.Logf("%s: %d answers on one connection, %d connections, slowest %v", l, l.answers.Load(), l.came.Load(),
			time.Duration(l.slowest.Load()))
	}
}

// programs returns the two program files.
func (s *swapped) programs() [2]string {
	s.Helper()
	if given := os.Getenv("FAIRLEAD_SWAP_PROGRAMS"); given != "" {
		first, second, _ := strings.Cut(given, ":")
		return [2]string{first, second}
	}
	files := [2]string{filepath.Join(s.dir, "first"), filepath.Join(s.dir, "second")}
	for _, file := range files {
		if err := compiled.Fairlead(file); err != nil {
			s.Fatal(err)
		}
	}
	content, err := os.ReadFile(files[0])
	if err == nil {
		err = os.WriteFile(files[1], content, 0o755)
	}
	if err != nil {
		s.Fatal(err)
	}
	return files
}

func (s *swapped) socket() string { return filepath.Join(s.dir, "s") }

// command returns a command of the program.
func (s *swapped) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Env = append(os.Environ(), "FAIRLEAD_SOCKET="+s.socket())
	cmd.Stdout, cmd.Stderr = s.Output(), s.Output()
	return cmd
}

// start starts a daemon with further flags, and waits until it is ready.
func (s *swapped) start(program string, flags ...string) {
	s.Helper()
	ready, writer, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	defer ready.Close()
	s.program = program
	cmd := s.command(append([]string{"daemon", "--ready-fd", "3", "--run-dir", filepath.Join(s.dir, "run"),
		"--state-dir", filepath.Join(s.dir, "state"), "--socket", s.socket()}, flags...)...)
	cmd.ExtraFiles = []*os.File{writer}
	// The test's context ends before its cleanups.
	s.daemon, err = child.Start(context.Background(), cmd, s.w.Server())
	writer.Close()
	if err == nil {
		err = ready.SetReadDeadline(time.Now().Add(place.Timeout))
	}
	if err != nil {
		s.Fatal(err)
	}
	if text, err := io.ReadAll(ready); string(text) != child.Ready {
		_ = s.daemon.Kill()
		s.Fatalf("the daemon is not ready: %q, %v", text, err)
	}
}

// stop ends the daemon with the signal that a service manager sends.
func (s *swapped) stop() {
	s.Helper()
	if err := s.daemon.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	select {
	case <-s.daemon.Done():
	case <-time.After(place.Timeout):
		_ = s.daemon.Kill()
		s.Fatal("the daemon has not ended after SIGTERM")
	}
	if err := s.daemon.Wait(); err != nil {
		s.Fatalf("the daemon exits with: %v", err)
	}
}

// end removes everything from the host.
func (s *swapped) end() {
	_ = s.daemon.Kill() // after a failure it runs still, or has ended
	s.start(s.program, "--teardown")
	s.apply("services: {}\n")
	s.stop()
	m := mortal{t: s.T}
	m.reap()
	if !s.Failed() {
		s.w.nothingLeft()
	}
}

// run runs a command of the program on the host.
func (s *swapped) run(args ...string) {
	s.Helper()
	p, err := child.Start(context.Background(), s.command(args...), s.w.Server())
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		s.Fatalf("fairlead %s: %v", strings.Join(args, " "), err)
	}
}

// apply applies a declaration.
func (s *swapped) apply(text string) {
	s.Helper()
	file := filepath.Join(s.dir, "fairlead.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
	s.run("apply", "-f", file)
}

// setUp publishes ports of the world's sandboxes.
func (s *swapped) setUp() {
	s.Helper()
	for _, n := range s.w.base.Networks {
		s.run("network", "create", n.Name, "--driver", string(n.Driver), "--subnet", n.Subnets[0].Prefix.String(),
			"--subnet", n.Subnets[1].Prefix.String())
	}
	for _, e := range s.w.base.Endpoints {
		s.run("attach", e.Network, e.Sandbox, "--name", e.Name)
	}
	for port, p := range published {
		switch {
		case p.plane != "":
			s.run("service", "add", p.plane, fmt.Sprintf("%s:%d", topology.ServerAddr4, port), "--plane", p.plane,
				"--real", fmt.Sprintf("name=%s:%d", p.sandbox, p.port))
		case p.via != "":
			s.run("publish", p.sandbox, fmt.Sprintf("%d:%d", port, p.port), fmt.Sprintf("%d:%d/udp", port, p.port),
				"--via", p.via)
		}
	}
	s.apply(declaredGateway)
}
