package load_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/load"
)

// TestConnectionHasFewSegments: a connection of tcp-crr has six segments. If the
// machine is so slow that delayed acknowledgements time out, it has more.
func TestConnectionHasFewSegments(t *testing.T) {
	for _, ip := range []string{v4, v6} {
		ns := newNetns(t)
		p := newPair(t, ns)
		p.run(t, p.listen(t, ip), load.Spec{Workload: load.TCPCRR, Count: 300, Duration: time.Nanosecond})
		c := tcpCounters(t, ns)
		if per := float64(c["OutSegs"]) / float64(c["ActiveOpens"]); per < 6 || per > 9.5 {
			t.Errorf("%s: %.2f segments per connection, want 6", ip, per)
		}
	}
}

// tcpCounters reads the namespace's TCP counters, which include both families.
func tcpCounters(t *testing.T, ns *os.File) map[string]int {
	t.Helper()
	var text []byte
	within(t, ns, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == "Tcp:" {
			rows = append(rows, f[1:])
		}
	}
	if len(rows) != 2 || len(rows[0]) != len(rows[1]) {
		t.Fatalf("unexpected format of the kernel's counters:\n%s", text)
	}
	counters := map[string]int{}
	for i, name := range rows[0] {
		if n, err := strconv.Atoi(rows[1][i]); err == nil {
			counters[name] = n
		}
	}
	if !slices.Contains(rows[0], "OutSegs") || counters["ActiveOpens"] == 0 {
		t.Fatalf("the kernel counts no segments or connections: %v", counters)
	}
	return counters
}
