package machines_test

import "testing"

// TestDocker: the laboratory's Docker engine and its container are on the server's
// machine, and nothing of them is left there.
func TestDocker(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	served, token := startAgent(t, server)
	rep := report(t, client, token, "docker", "docker:publish", "--baseline", "docker:publish", "--client", "remote",
		"--workload", "tcp-rr", "--duration", "100ms")
	measured(t, rep, "docker:publish")
	served.token(t)
	nothingLeft(t, served)
}
