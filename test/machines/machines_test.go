// Package machines_test runs the laboratory between two machines. The machines are
// network namespaces that share nothing but a link.
package machines_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/cli"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/agent"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/visitor"
	"fairlead/internal/lab/website"
	"fairlead/internal/proxy"
)

// commandRole is the command line in this test binary.
const commandRole = "command"

// versionVariable is the environment variable with the version of that fairlead.
const versionVariable = "FAIRLEAD_TEST_VERSION"

func TestMain(m *testing.M) {
	build := cli.Build{Version: cmp.Or(os.Getenv(versionVariable), "test")}
	run := func() int { return cli.Main(build, cli.Arguments(os.Args), os.Stdout, os.Stderr) }
	child.Dispatch(child.Roles{load.Role: load.Main, proxy.Role: proxy.Main, agent.SweeperRole: agent.SweeperMain,
		serving.Role: serving.Main, website.Role: website.Main, visitor.Role: visitor.Main,
		failover.HostRole: failover.HostMain, commandRole: run})
	if len(os.Args) > 1 && os.Args[1] == "lab" { // a copy that was started with ssh
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// limit is how long anything in these tests may take.
const limit = 2 * time.Minute

// serverAddress is the address of the server's machine.
const serverAddress = "192.0.2.2"

// machines returns the machines of the client and the server, whose links are both
// called eth0. A switch with its own filters connects them.
func machines(t testing.TB) (client, server, between *netns.Namespace) {
	t.Helper()
	between = kerneltest.Netns(t)
	kerneltest.Run(t, between, "ip", "link", "add", "br0", "type", "bridge")
	kerneltest.Run(t, between, "ip", "link", "set", "br0", "up")
	return connected(t, between, 1), connected(t, between, 2), between
}

// connected returns a machine whose link is connected with the switch, with the address
// 192.0.2.NUMBER.
func connected(t testing.TB, between *netns.Namespace, number int) *netns.Namespace {
	t.Helper()
	m, port := kerneltest.Netns(t), fmt.Sprintf("port%d", number)
	kerneltest.Run(t, between, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), m.File().Fd()))
	kerneltest.Run(t, between, "ip", "link", "set", port, "master", "br0", "up")
	kerneltest.Run(t, m, "ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", number), "dev", "eth0")
	kerneltest.Run(t, m, "ip", "link", "set", "eth0", "up")
	return m
}

// command is a running fairlead.
type command struct {
	*child.Process
	lines chan string
	// text is the standard error, complete when the process has ended.
	text *strings.Builder
}

// start runs fairlead on a machine.
func start(t testing.TB, on *netns.Namespace, env []string, args ...string) command {
	t.Helper()
	cmd := child.Self(commandRole)
	cmd.Args = append([]string{"fairlead"}, args...)
	cmd.Env = append(cmd.Env, env...)
	return launch(t, on, cmd)
}

// launch runs a command on a machine until the test ends.
func launch(t testing.TB, on *netns.Namespace, cmd *exec.Cmd) command {
	t.Helper()
	c := command{lines: make(chan string, 100), text: &strings.Builder{}}
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, c.text
	p, err := child.Start(context.Background(), cmd, child.Place{Netns: on.File()})
	if err != nil {
		t.Fatal(err)
	}
	c.Process = p
	go func() {
		for scan := bufio.NewScanner(out); scan.Scan(); {
			select {
			case c.lines <- scan.Text():
			default: // a long table that no test reads
			}
		}
	}()
	t.Cleanup(func() { _ = p.Kill() })
	return c
}

// ended waits until it has ended.
func (c command) ended(t testing.TB) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(limit):
		t.Fatalf("%s has not ended", strings.Join(c.Cmd.Args, " "))
	}
}

// startAgent starts an agent on a machine, and returns its first token.
func startAgent(t testing.TB, on *netns.Namespace) (command, string) {
	t.Helper()
	c := start(t, on, nil, "lab", "agent", "--expose", "eth0", "-o", "json")
	return c, c.token(t)
}

// token waits for the agent's next token.
func (c command) token(t testing.TB) string {
	t.Helper()
	select {
	case line := <-c.lines:
		var issued struct{ Token string }
		if err := json.Unmarshal([]byte(line), &issued); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return issued.Token
	case <-c.Done():
		t.Fatalf("the agent ended: %s", c.text)
	case <-time.After(limit):
		t.Fatal("the agent issued no token")
	}
	return ""
}

// startLab starts a laboratory with the server's side at the agent.
func startLab(t *testing.T, on *netns.Namespace, token string, args ...string) command {
	t.Helper()
	return start(t, on, []string{"FAIRLEAD_LAB_SERVER_TOKEN=" + token}, append([]string{"lab", "run", "--shared",
		"--server", serverAddress}, args...)...)
}

// runLab runs it to its end.
func runLab(t *testing.T, on *netns.Namespace, token string, args ...string) (text string, err error) {
	t.Helper()
	c := startLab(t, on, token, args...)
	c.ended(t)
	return c.text.String(), c.Wait()
}

// report runs one round of a laboratory, and returns its report.
func report(t *testing.T, on *netns.Namespace, token string, args ...string) (rep result.Report) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	text, err := runLab(t, on, token, append(args, "--rounds", "1", "--json", file)...)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return readReport(t, file)
}

// readReport reads a report in JSON.
func readReport(t testing.TB, file string) (rep result.Report) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &rep)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// measured checks that the report has valid runs of each path.
func measured(t *testing.T, rep result.Report, paths ...string) {
	t.Helper()
	seen := map[string]bool{}
	for _, run := range rep.Runs {
		// A machine that is throttled can disturb a run without a fault of the laboratory.
		if len(run.Invalid) > 0 && !run.Disturbed || run.Proof == nil || !run.Proof.OK {
			t.Errorf("%s %s %s: %q, %+v", run.Path, run.Client, run.Workload, run.Invalid, run.Proof)
		}
		seen[run.Path] = true
	}
	for _, path := range paths {
		if !seen[path] {
			t.Errorf("path %s was not measured: %+v", path, rep.Unavailable)
		}
	}
}

// nothingLeft waits until no cgroup of a fairlead is left, and so no process in one.
func nothingLeft(t *testing.T, c command) {
	t.Helper()
	awaitGroups(t, c.Cmd.Process.Pid, false)
}

// awaitGroups waits until a fairlead has cgroups, or has none.
func awaitGroups(t *testing.T, pid int, some bool) {
	t.Helper()
	pattern := filepath.Join(kerneltest.CgroupRoot(t), fmt.Sprintf("fairlead-lab-%d-*", pid))
	await(t, fmt.Sprintf("process %d has cgroups: %t", pid, some), func() bool {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return some == (len(found) > 0)
	})
}

// linksOf returns the names of a machine's links.
func linksOf(t testing.TB, m *netns.Namespace) (names string) {
	t.Helper()
	for line := range strings.Lines(kerneltest.Run(t, m, "ip", "-br", "link")) {
		names += strings.Fields(line)[0] + " "
	}
	return names
}

// TestBetweenTwoMachines: the report has figures of every path, proved by counters of
// both machines, and describes both.
func TestBetweenTwoMachines(t *testing.T) {
	client, server, _ := machines(t)
	before := linksOf(t, server)
	served, token := startAgent(t, server)
	rep := report(t, client, token, "publish", "--workload", "tcp-rr,tcp-bulk", "--client", "remote,local",
		"--duration", "30ms")
	if len(rep.Machines) != 2 || rep.Machines[0].Link.Driver != "veth" || rep.Machines[1].Link.Name != "eth0" {
		t.Errorf("machines %+v", rep.Machines)
	}
	for _, run := range rep.Runs {
		if want := map[result.Client]int{result.Remote: 2, result.Local: 1}[run.Client]; len(run.Ledgers) != want {
			t.Errorf("%s %s: %d ledgers, want %d", run.Path, run.Client, len(run.Ledgers), want)
		}
	}
	measured(t, rep, "host", "ebpf", "nat", "proxy")
	served.token(t) // the laboratory's end is known to the agent
	nothingLeft(t, served)
	if after := linksOf(t, server); after != before {
		t.Errorf("links of the server's machine: %s, want %s", after, before)
	}
}

// TestLostLink: when the link is lost, both sides end without a packet from the other,
// and the agent removes everything.
func TestLostLink(t *testing.T) {
	t.Parallel()
	client, server, between := machines(t)
	served, token := startAgent(t, server)
	lab := startLab(t, client, token, "publish", "--rounds", "1000", "--duration", "20ms")
	awaitGroups(t, served.Cmd.Process.Pid, true)
	kerneltest.Run(t, between, "ip", "link", "set", "br0", "down")
	served.token(t)
	nothingLeft(t, served)
	lab.ended(t)
	nothingLeft(t, lab)
}

// TestRefusals: the laboratory refuses with a reason that names what is wrong.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		// on is run on the machine of the server, or in between.
		server, between []string
		want            string
	}{
		"a filter on the server's machine": {
			server: []string{"add table netdev guard", "add chain netdev guard in { type filter hook ingress device eth0 " +
				"priority 0; }", "add rule netdev guard in ip daddr 198.51.100.2 udp dport 8080 drop"},
			want: "nftables table netdev guard on the server's machine",
		},
		"a firewall in between": {
			between: []string{"add table bridge guard", "add chain bridge guard passing { type filter hook forward priority 0; }",
				"add rule bridge guard passing ether type ip ip daddr 198.51.100.2 tcp dport 8080 drop"},
			want: "no TCP packets pass between link eth0 of the server's machine and link eth0 of the client's machine, " +
				"but others do: a firewall",
		},
		"frames of other MAC addresses are dropped": {
			between: []string{"add table bridge guard", "add chain bridge guard passing { type filter hook forward priority 0; }",
				"add rule bridge guard passing ether type ip ip daddr 198.51.100.0/24 drop"},
			want: "drops frames from other MAC addresses",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server, between := machines(t)
			for _, rule := range c.server {
				kerneltest.Run(t, server, "nft", rule)
			}
			for _, rule := range c.between {
				kerneltest.Run(t, between, "nft", rule)
			}
			served, token := startAgent(t, server)
			text, err := runLab(t, client, token, "modes")
			if err == nil || !strings.Contains(text, c.want) {
				t.Errorf("got %v: %s\nwant a refusal with %q", err, text, c.want)
			}
			served.token(t)
			nothingLeft(t, served)
		})
	}
}

// TestOtherVersion: an agent of another version is refused, and its token stays valid.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	served := start(t, server, []string{versionVariable + "=v2"}, "lab", "agent", "--expose", "eth0", "-o", "json")
	token := served.token(t)
	for range 2 {
		text, err := runLab(t, client, token, "modes")
		if want := "the agent has version v2 of fairlead, the laboratory test"; err == nil || !strings.Contains(text, want) {
			t.Errorf("got %v: %s\nwant a refusal with %q", err, text, want)
		}
	}
}

// TestNoAgent: without an agent, and without a route, the error says so.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	served, token := startAgent(t, server)
	if err := served.Kill(); err != nil {
		t.Fatal(err)
	}
	text, err := runLab(t, client, token, "modes")
	if err == nil || !strings.Contains(text, "run `fairlead lab agent`") {
		t.Errorf("without an agent: %v: %s", err, text)
	}
	kerneltest.Run(t, client, "ip", "addr", "flush", "dev", "eth0")
	if text, err := runLab(t, client, token, "modes"); err == nil || !strings.Contains(text, "there is no route") {
		t.Errorf("without a route: %v: %s", err, text)
	}
}
