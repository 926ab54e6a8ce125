package cluster_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/plan"
	"fairlead/test/authority"
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
	ca := authority.Start(t, authority.Order{Address: "192.0.2.60:14000", Names: "192.0.2.100"},
		child.Place{Netns: l.connected(60).File()})
	instead := []string{"nginx", "program serve tcp:80", "curl -s http://", "/program ask tcp ", "TOKEN", ""}
	instead = append(instead, "gateway.yaml", exampleGateway(t, ca))
	if !facts.Has(plan.FeatureWireGuard) {
		instead = append(instead, " --encrypt", "")
	}
	commands := command.FindAllStringSubmatch(string(text), -1)
	if len(commands) < 17 {
		t.Fatalf("the example has the commands %q", commands)
	}
	for _, c := range commands {
		line := strings.NewReplacer(instead...).Replace(c[2])
		_, secure, isSecure := strings.Cut(line, "https://")
		switch {
		case isSecure:
			l.until("a client reaches "+secure, func() bool { return certified(t, client, secure, ca) })
		case c[1] == "client":
			_, at, _ := strings.Cut(line, "tcp ")
			l.until("a client reaches "+at, func() bool {
				conn, err := place.Dial(client.Do, "tcp", at, place.Timeout)
				if err == nil {
					conn.Close()
				}
				return err == nil
			})
		case c[1] == "each":
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
	if n := ca.Orders(); n != 1 {
		t.Errorf("the hosts have ordered %d certificates", n)
	}
	for _, h := range hosts {
		h.until("valid", h.dir+"/fairlead gateway certificates")
	}
	if said := hosts[0].run("fairlead cluster status"); strings.Count(said, "alive") != 3 ||
		!strings.Contains(said, "192.0.2.100") {
		t.Errorf("at the end the cluster is\n%s", said)
	}
}

// exampleGateway returns the path of the example's file, with a resolver that asks the authority of the test.
func exampleGateway(t *testing.T, ca *authority.Authority) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/cluster/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const last = "storage: cluster\n"
	with := fmt.Sprintf("%s        caServer: %q\n        caCertificates: [%q]\n        caServerName: example.com\n",
		last, ca.URL, ca.Roots)
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), last, with, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// certified reports whether the client gets a certificate with a name from the virtual address.
func certified(t *testing.T, client *netns.Namespace, name string, ca *authority.Authority) bool {
	t.Helper()
	conn, err := place.Dial(client.Do, "tcp", "192.0.2.100:443", place.Timeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), place.Timeout)
	defer cancel()
	return tls.Client(conn, &tls.Config{ServerName: name, RootCAs: ca.Root}).HandshakeContext(ctx) == nil
}

// run runs a command as a user of the host does.
func (h *dockerHost) run(line string) string {
	h.Helper()
	return h.sh("export PATH=" + h.dir + ":$PATH\n" + line)
}
