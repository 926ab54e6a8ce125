package machines_test

import "testing"

// TestSessionsBetweenTwoMachines: each session builds its paths anew on both machines, over the
// same connection.
func TestSessionsBetweenTwoMachines(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	served, token := startAgent(t, server)
	rep := report(t, client, token, "nat", "--workload", "tcp-rr", "--client", "remote", "--sessions", "2", "--rounds",
		"1", "--duration", "100ms")
	served.token(t)
	seen := map[int]int{}
	for _, run := range rep.Runs {
		if len(run.Invalid) > 0 {
			t.Errorf("session %d, %s: %q", run.Session, run.Path, run.Invalid)
		}
		seen[run.Session]++
	}
	if rep.Sessions != 2 || len(seen) != 2 || seen[1] != seen[2] {
		t.Errorf("%d sessions, runs of each %v", rep.Sessions, seen)
	}
}
