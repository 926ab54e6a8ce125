package load_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/load"
)

// A connection of tcp-crr has six segments. A machine that is slow enough to
// let acknowledgements time out adds three at most.
func TestAConnectionHasFewSegments(t *testing.T) {
	const connections = 300
	for _, ip := range []string{v4, v6} {
		ns := newNetns(t)
		p := newPair(t, ns)
		target := p.listen(t, ip)
		spec := load.Spec{Workload: load.TCPCRR, Count: connections, Duration: time.Nanosecond}
		p.run(t, target, spec) // whatever the first connections cost
		before := segments(t, ns)
		p.run(t, target, spec)
		// The run opens with one connection more, outside its window.
		per := float64(segments(t, ns)-before) / (connections + 1)
		if per < 5.9 || per > 8 {
			t.Errorf("%s: %.2f segments a connection, want 6", ip, per)
		}
	}
}

// segments counts what TCP has sent in the namespace, over both families.
func segments(t *testing.T, ns *os.File) int {
	t.Helper()
	var text []byte
	within(t, ns, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	var names []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, name := range names {
			if name == "OutSegs" {
				n, err := strconv.Atoi(f[i])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatal("the kernel does not count segments")
	return 0
}
