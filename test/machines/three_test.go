package machines_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/netns"
)

// clientAddress is the address of the client's machine.
const clientAddress = "192.0.2.1"

// TestThreeMachines: a laboratory measures between two other machines, and its own one
// has no part of a path. Both agents then serve the next laboratory.
func TestThreeMachines(t *testing.T) {
	t.Parallel()
	client, server, between := machines(t)
	own := connected(t, between, 3)
	before := [2]string{linksOf(t, client), linksOf(t, server)}
	clients, clientToken := startAgent(t, client)
	servers, serverToken := startAgent(t, server)
	rep := report(t, own, serverToken, "publish", "nat", "--client", "remote,"+clientAddress+"="+clientToken,
		"--workload", "tcp-rr", "--duration", "100ms")
	measured(t, rep, "host", "nat")
	for i, want := range []string{serverAddress, clientAddress} {
		if m := rep.Machines[i]; m.Address != want+":5210" || m.Link.Name != "eth0" {
			t.Errorf("machine %d: %s, link %+v, want %s", i, m.Address, m.Link, want)
		}
	}
	for _, run := range rep.Runs {
		if len(run.Ledgers) != 2 {
			t.Errorf("%s: %d ledgers, want one of each agent", run.Path, len(run.Ledgers))
		}
	}
	for _, served := range []command{clients, servers} {
		served.token(t)
		nothingLeft(t, served)
	}
	if after := [2]string{linksOf(t, client), linksOf(t, server)}; after != before {
		t.Errorf("links: %q, want %q", after, before)
	}
}

// TestOtherTraffic: a link with other traffic is refused with its rate, or measured with
// --shared. Then the report has the rate.
func TestOtherTraffic(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	served := startAlone(t, server, "lab", "agent", "--expose", "eth0", "-o", "json")
	sendOther(t, client)
	lab := startAlone(t, client, "lab", "run", "modes", "--server", serverAddress+"="+served.token(t))
	lab.ended(t)
	want := "s machine carries "
	if text := lab.text.String(); !strings.Contains(text, want) || !strings.Contains(text, "use --shared") &&
		!strings.Contains(text, "with --shared") {
		t.Errorf("got %s, want a refusal with %q", text, want)
	}
	rep := report(t, client, served.token(t), "host", "--workload", "tcp-rr", "--client", "remote", "--duration",
		"100ms")
	for _, m := range rep.Machines {
		if m.Link.Other < 10e6 {
			t.Errorf("the %s's link: %.0f bit/s of other traffic, want about 140 Mbit/s", m.Part, m.Link.Other)
		}
	}
}

// sendOther sends about 140 Mbit/s from the client's to the server's machine until the
// test ends.
func sendOther(t *testing.T, client *netns.Namespace) {
	t.Helper()
	var conn net.Conn
	if err := client.Do(func() (err error) {
		conn, err = net.Dial("udp", serverAddress+":9")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		packet, began := make([]byte, 50<<10), time.Now()
		for sent := time.Duration(0); ; sent++ {
			time.Sleep(time.Until(began.Add(sent * 3 * time.Millisecond))) // it catches up after a pause
			if _, err := conn.Write(packet); errors.Is(err, net.ErrClosed) {
				return // others report that the port is closed
			}
		}
	}()
}

// startAlone runs fairlead on a machine that has its own /run, so that laboratories of
// other tests do not use the machine.
func startAlone(t *testing.T, on *netns.Namespace, args ...string) command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", `mount -t tmpfs tmpfs /run && exec "$0" "$@"`,
		self}, args...)...)
	cmd.Env = append(os.Environ(), child.Role+"="+commandRole, "FAIRLEAD_LAB_SHARED=")
	return launch(t, on, cmd)
}
