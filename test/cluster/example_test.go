package cluster_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"fairlead/internal/kernel"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// command matches a command of the example: the host and what it runs.
var command = regexp.MustCompile(`(?m)^(host[123]|each|client)# (.*)$`)

// TestExample runs the commands of examples/cluster with a Docker engine on each host. On a kernel without
// WireGuard, the network is not encrypted; test/vm has one with it.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/cluster/README.md")
	if err != nil {
		t.Fatal(err)
	}
	facts, err := kernel.Probe()
	if err != nil {
		t.Fatal(err)
	}
	l := newEmptyLAN(t, 1)
	hosts := l.dockerHosts(programs(t), "", "", "")
	client := l.connected(50)
	instead := []string{"nginx", "program serve tcp:80", "curl -s http://", "/program ask tcp ", "TOKEN", ""}
	if !facts.Has(plan.FeatureWireGuard) {
		instead = append(instead, " --encrypt", "")
	}
	commands := command.FindAllStringSubmatch(string(text), -1)
	if len(commands) < 12 {
		t.Fatalf("the example has the commands %q", commands)
	}
	for _, c := range commands {
		line := strings.NewReplacer(instead...).Replace(c[2])
		switch c[1] {
		case "client":
			_, at, _ := strings.Cut(line, "tcp ")
			l.until("a client reaches "+at, func() bool {
				conn, err := place.Dial(client.Do, "tcp", at, place.Timeout)
				if err == nil {
					conn.Close()
				}
				return err == nil
			})
		case "each":
			for _, h := range hosts {
				h.run(line)
			}
		default:
			said := hosts[c[1][4]-'1'].run(line)
			if strings.Contains(line, "token create") {
				instead[5] = said
			}
		}
	}
	if said := hosts[0].run("fairlead cluster status"); strings.Count(said, "alive") != 3 ||
		!strings.Contains(said, "192.0.2.100") {
		t.Errorf("at the end the cluster is\n%s", said)
	}
}

// run runs a command as a user of the host does.
func (h *dockerHost) run(line string) string {
	h.Helper()
	return h.sh("export PATH=" + h.dir + ":$PATH\n" + line)
}
