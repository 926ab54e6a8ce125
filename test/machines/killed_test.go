package machines_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killsVariable is the environment variable with the number of kills of each test of
// kills; see `make soak`.
const killsVariable = "FAIRLEAD_MACHINES_KILLS"

// killRounds returns the number of kills, which is few by default.
func killRounds(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv(killsVariable)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", killsVariable, err)
	}
	return n
}

// moment waits for a part of the time that a session takes to build its paths: none in
// the first round, then a random one. It synchronises nothing.
func moment(t *testing.T, round int) {
	t.Helper()
	wait := time.Duration(rand.Int64N(int64(2 * time.Second)))
	if round == 0 {
		wait = 0
	}
	t.Logf("after %v", wait)
	time.Sleep(wait)
}

// TestKilled: whichever side is killed, at any moment, nothing is left on either
// machine.
func TestKilled(t *testing.T) {
	victims := []string{"laboratory", "agent"}
	for round := range killRounds(t, len(victims)) {
		victim := victims[round%len(victims)]
		t.Run(fmt.Sprint(victim, round), func(t *testing.T) {
			t.Parallel()
			client, server, _ := machines(t)
			before, mark := linksOf(t, server), newMarker(t)
			served := start(t, server, []string{mark.text()}, "lab", "agent", "--expose", "eth0", "-o", "json")
			lab := start(t, client, []string{mark.text(), "FAIRLEAD_LAB_SERVER_TOKEN=" + served.token(t)}, "lab", "run",
				"publish", "--shared", "--server", serverAddress, "--rounds", "1000", "--duration", "20ms")
			moment(t, round)
			killed, other := lab, served
			if victim == "agent" {
				killed, other = served, lab
			}
			if err := killed.Cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed.ended(t)
			if victim == "laboratory" { // then the agent and its sweeper wait for the next one
				await(t, "two processes are left", func() bool { return len(mark.processes(t)) == 2 })
				nothingLeft(t, served)
				if err := served.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			other.ended(t)
			mark.noProcesses(t)
			nothingLeft(t, served)
			nothingLeft(t, lab)
			if after := linksOf(t, server); after != before {
				t.Errorf("links of the server's machine: %s, want %s", after, before)
			}
		})
	}
}

// marker is an environment variable that the processes of one test have.
type marker string

// newMarker returns the marker of a test.
func newMarker(t *testing.T) marker {
	t.Helper()
	return marker(fmt.Sprintf("FAIRLEAD_TEST_MARKER=%d-%d", os.Getpid(), rand.Uint64()))
}

func (m marker) text() string { return string(m) }

// processes returns the command lines of the processes with the marker.
func (m marker) processes(t *testing.T) map[int]string {
	t.Helper()
	all := map[int]string{}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		environment, err := os.ReadFile(file)
		if err != nil || !strings.Contains("\x00"+string(environment), "\x00"+string(m)+"\x00") {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		all[pid] = string(line)
	}
	return all
}

// find waits for a process whose command line begins with a text, and returns its
// process id.
func (m marker) find(t *testing.T, prefix string) (pid int) {
	t.Helper()
	await(t, "a process runs "+strings.Trim(prefix, "\x00"), func() bool {
		for at, line := range m.processes(t) {
			name, rest, _ := strings.Cut(line, "\x00")
			if pid = at; strings.HasPrefix(line, prefix) || strings.HasPrefix(filepath.Base(name)+"\x00"+rest, prefix) {
				return true
			}
		}
		return false
	})
	return pid
}

// noProcesses waits until no process has the marker. Then the namespaces in which they
// were have ended too.
func (m marker) noProcesses(t *testing.T) {
	t.Helper()
	var left map[int]string
	await(t, "all processes end", func() bool {
		left = m.processes(t)
		return len(left) == 0
	})
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %v: %s", limit, what)
		}
	}
}
