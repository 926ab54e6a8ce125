package docker_test

import (
	"context"
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

	"github.com/google/go-cmp/cmp"
)

// host is a host as a user has it: a Docker engine, a Fairlead daemon, and a LAN with another host.
type host struct {
	testing.TB
	*dockerd.Engine
	// dir contains the programs fairlead and program.
	dir string
	// whole is the test for whose duration the host exists, daemon the current daemon, and said the
	// daemon's output.
	whole  testing.TB
	daemon **child.Process
	said   *logged
}

// furnish connects the host to its LAN.
const furnish = `
ip link set lo up
ip netns add lan
ip link add up0 type veth peer name eth0 netns lan
for ns in "" "ip netns exec lan"; do
	$ns ip link set lo up
	$ns sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
done
echo 0 > /proc/sys/net/ipv6/conf/up0/accept_dad
ip addr add 192.0.2.10/24 dev up0
ip addr add 2001:db8:9::10/64 dev up0 nodad
ip link set up0 up
ip -n lan addr add 192.0.2.1/24 dev eth0
ip -n lan addr add 2001:db8:9::1/64 dev eth0 nodad
ip -n lan link set eth0 up
ip route add default via 192.0.2.1
ip route add default via 2001:db8:9::1
complete() { ip -6 route show table local dev up0 | grep -q ^multicast && ip -6 addr show dev up0 | grep -q fe80; }
await complete
`

// programs builds the programs that run on hosts, once.
func programs(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := compiled.Fairlead(filepath.Join(dir, "fairlead")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "program"), "./testdata/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return dir
}

// newHost makes a host with an engine whose programs are in a directory.
func newHost(t *testing.T, dir, engine string, flags ...string) *host {
	t.Helper()
	h := hostOf(t, dir, engines.Start(t, dockerd.Options{Enter: []string{"unshare", "--net"}, Programs: engine,
		Flags: append(flags, "--iptables=false", "--ip6tables=false", "--bridge=none")}))
	h.start()
	return h
}

// hostOf makes a host from an engine, without a daemon.
func hostOf(t *testing.T, dir string, engine *dockerd.Engine) *host {
	t.Helper()
	h := &host{TB: t, whole: t, daemon: new(*child.Process), said: new(logged), dir: dir, Engine: engine}
	h.sh(furnish)
	engines.Image(t, h.Engine, "program", filepath.Join(dir, "program"))
	return h
}

// with returns the host for a subtest. If the subtest fails, the daemon's output since its start is
// logged.
func (h *host) with(t *testing.T) *host {
	part := *h
	part.TB = t
	before := len(h.said.lines()) - 1
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's output:\n%s", strings.Join(h.said.lines()[before:], ""))
		}
	})
	return &part
}

// inventory lists the parts of the host's network configuration that Fairlead must leave unchanged.
func (h *host) inventory() string {
	h.Helper()
	return h.sh(`
ip -o link | sed 's/^[0-9]*: //' | sort
ip -o addr | sed 's/^[0-9]*: //' | sort
ip route show table all | grep -v 'dev lo' | sort
ip -6 route show table all | grep -v 'dev lo' | sort
nft list ruleset
cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding
`)
}

// unchanged fails the test unless the host's network configuration is the same as before.
func (h *host) unchanged(before string) {
	h.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(h.inventory(), "\n")); diff != "" {
		h.Errorf("the host's configuration differs from before, was (-), is (+):\n%s", diff)
	}
}

// start starts the daemon with the paths that users have.
func (h *host) start() {
	h.Helper()
	h.startWith()
}

// startWith starts the daemon with additional flags.
func (h *host) startWith(flags ...string) {
	h.Helper()
	cmd := h.Command(context.Background(), filepath.Join(h.dir, "fairlead"),
		append([]string{"daemon", "--state-dir", "/run/fairlead-state"}, flags...)...)
	ready := h.said.next("msg=ready")
	cmd.Stdout, cmd.Stderr = h.said, h.said
	cmd.WaitDelay = time.Second // the proxy outlives the daemon and keeps its output open
	p, err := child.Start(context.WithoutCancel(h.Context()), cmd, child.Place{})
	if err != nil {
		h.Fatal(err)
	}
	*h.daemon = p
	h.whole.Cleanup(func() { _ = p.Kill() }) // if it has not ended yet
	select {
	case <-ready:
	case <-p.Done():
		h.Fatal("the daemon has exited")
	case <-time.After(startLimit):
		h.Fatal("timeout: the daemon is not ready")
	}
}

// logged stores the output of a program.
type logged struct {
	mu  sync.Mutex
	all strings.Builder
	// The output after offset from is searched for word.
	word string
	from int
	seen chan struct{}
}

// next returns a channel that is closed when the program next prints the word.
func (l *logged) next(word string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.word, l.from, l.seen = word, l.all.Len(), make(chan struct{})
	return l.seen
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(b)
	if l.word != "" && strings.Contains(l.all.String()[l.from:], l.word) {
		l.word = ""
		close(l.seen)
	}
	return len(b), nil
}

// lines returns the lines of the output. The last one may be incomplete.
func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.SplitAfter(l.all.String(), "\n")
}

// kill kills the daemon.
func (h *host) kill() {
	h.Helper()
	h.sh("kill -9 $(cat /run/fairlead/pid)")
	h.daemonEnds()
}

// sh runs commands on the host, which must succeed. They can use functions.
func (h *host) sh(script string) string {
	h.Helper()
	out, err := h.Command(h.Context(), "sh", "-ec", functions+script).CombinedOutput()
	if err != nil {
		h.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// docker runs Docker's CLI, which must succeed.
func (h *host) docker(args ...string) string {
	h.Helper()
	out, err := h.Run(h.Context(), args...)
	if err != nil {
		h.Fatal(err)
	}
	return out
}

// asks fails the test unless a request is answered. It returns the answer: the client address that
// the server sees. in is prepended to the command.
func (h *host) asks(in, network, addr string) string {
	h.Helper()
	out, err := h.Command(h.Context(), "sh", "-ec", in+" "+filepath.Join(h.dir, "program")+" ask "+network+" "+
		addr).CombinedOutput()
	if err != nil {
		h.Errorf("%s asks %s %s: %v: %s", in, network, addr, err, out)
	}
	return strings.TrimSpace(string(out))
}

const (
	lan      = "ip netns exec lan"
	lanAddr  = "192.0.2.1"
	hostAddr = "192.0.2.10"

	lanAddr6  = "2001:db8:9::1"
	hostAddr6 = "2001:db8:9::10"
)
