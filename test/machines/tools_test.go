package machines_test

import (
	"testing"

	"fairlead/internal/lab/result"
)

// TestTools: the server of a tool runs on the server's machine and its client on the
// client's.
func TestTools(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	_, token := startAgent(t, server)
	rep := report(t, client, token, "publish", "host", "ebpf", "--client", "remote", "--workload", "tcp-bulk,tcp-rr",
		"--duration", "100ms", "--with", "iperf3,wrk")
	measured(t, rep, "host", "ebpf")
	with := map[string]int{}
	for _, run := range rep.Runs {
		if run.Tool != result.OwnTool && len(run.Ledgers) == 2 {
			with[run.Tool]++
		}
	}
	if len(with) != 2 {
		t.Errorf("runs of tools: %v", with)
	}
	for _, m := range rep.Machines {
		if m.Host.Tools["iperf3"] == "" {
			t.Errorf("the %s's machine has the tools %v", m.Part, m.Host.Tools)
		}
	}
}
