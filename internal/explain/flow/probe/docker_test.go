package probe_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/dockerd"
	"fairlead/test/engines"
)

// timeout is how long a probe may wait on a busy machine.
const timeout = 20 * time.Second

// TestDocker explains the ports that Docker publishes: via its NAT rules for other
// machines, and via its proxy for loopback.
func TestDocker(t *testing.T) {
	host, machine := newHost(t)
	e := engines.Start(t, dockerd.Options{Netns: host.Netns()})
	engines.Image(t, e, "server", buildServer(t))
	id, err := e.Run(t.Context(), "run", "-d", "--name", "web", "-p", "8088:8080", "server")
	if err != nil {
		t.Fatal(id, err)
	}
	opt := hostview.Options{Containers: map[string]string{strings.TrimSpace(id)[:12]: "web"}}
	for text, want := range map[string][]string{
		machine + " to :8088": {"nat ip nat DOCKER", "bridge ", "socket "},
		"localhost to :8088":  {"proxy listening on", "bridge ", "socket "},
		"host to :8088":       {"nat ip nat DOCKER", "bridge ", "socket "},
	} {
		t.Run(text, func(t *testing.T) { explained(t, host, opt, text, want) })
	}
}

// explainNow explains a flow in the current state of the host.
func explainNow(t *testing.T, host *kernel.Host, opt hostview.Options, text string,
) (*hostview.World, flow.Explanation) {
	t.Helper()
	w, err := hostview.New(host, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	f, err := flow.Parse([]string{text})
	if err != nil {
		t.Fatal(err)
	}
	e, err := flow.Explain(w.Facts(), f)
	if err != nil {
		t.Fatal(err)
	}
	return w, e
}

// explained explains a flow to the container and probes it.
func explained(t *testing.T, host *kernel.Host, opt hostview.Options, text string, want []string) {
	t.Helper()
	w, e := explainNow(t, host, opt, text)
	for begun := time.Now(); e.Outcome == flow.Refused &&
		time.Since(begun) < timeout; { // the container has just started
		w, e = explainNow(t, host, opt, text)
	}
	if err := probe.Send(t.Context(), w, &e, probe.Options{Timeout: timeout}); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, h := range e.Hops {
		fmt.Fprintf(&got, "%s %s [%s %s, %s] %s\n", h.Kind, h.By, h.Where, h.Link, h.Seen, h.What)
	}
	fmt.Fprintf(&got, "%s %+v %+v", e.Verdict, e.Process, e.Probe)
	for _, part := range want {
		if !strings.Contains(got.String(), part) {
			t.Errorf("the explanation does not contain %q", part)
		}
	}
	p := e.Process
	if e.Outcome != flow.Delivered || p == nil || p.Command != "server" || p.Where != "web" || !e.Probe.Agrees {
		t.Error("the flow does not end in the container")
	}
	if t.Failed() {
		t.Log(got.String())
	}
}

// newHost returns a namespace with a link to a LAN, and the address of another
// machine on the LAN. The code under test searches every namespace of this
// computer for the address, so no other test may use it. It is therefore derived
// from the process's id, in the range for network tests (RFC 2544).
func newHost(t *testing.T) (*kernel.Host, string) {
	t.Helper()
	id := os.Getpid()
	lan := fmt.Sprintf("198.%d.%d.", 18+id>>14&1, id>>6&0xff)
	local, machine := fmt.Sprint(lan, id&0x3f<<2+1), fmt.Sprint(lan, id&0x3f<<2+2)
	spaces := [2]*netns.Namespace{kerneltest.Netns(t), kerneltest.Netns(t)}
	script := fmt.Sprintf(`ip link add eth0 type veth peer name eth0 netns /proc/%d/fd/%d
ip address add %s/30 dev eth0
ip link set eth0 up
nsenter --net=/proc/%[1]d/fd/%[2]d ip address add %[4]s/30 dev eth0
nsenter --net=/proc/%[1]d/fd/%[2]d ip link set eth0 up`, id, spaces[1].File().Fd(), local, machine)
	err := spaces[0].Do(func() error {
		out, err := exec.Command("sh", "-ec", script).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// A process in the other machine's namespace, through which it can be found.
	hold := exec.Command("sleep", "infinity")
	if err := spaces[1].Do(hold.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hold.Process.Kill(); _ = hold.Wait() })
	host, err := kernel.Open(spaces[0].Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	return host, machine
}

// buildServer builds the tests' server, which listens on TCP port 8080.
func buildServer(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "server")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../../../../test/e2e/testdata/server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	return program
}
