package machines_test

import (
	"strings"
	"testing"
)

// TestBalancersAndGateways: virtual services and gateways are on the server's machine
// with their real servers.
func TestBalancersAndGateways(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	_, token := startAgent(t, server)
	rep := report(t, client, token, "balancer", "routed", "balance:ebpf", "balance:nft", "balance:haproxy",
		"gateway:fairlead", "gateway:nginx", "gateway:haproxy", "--workload", "tcp-rr,http-rr", "--duration", "100ms")
	measured(t, rep, "routed", "balance:ebpf", "balance:nft", "balance:haproxy", "gateway:fairlead", "gateway:nginx",
		"gateway:haproxy")
}

// TestManyFlows: paths on the server's machine keep the flows that the client's machine
// opens from further addresses.
func TestManyFlows(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	_, token := startAgent(t, server)
	rep := report(t, client, token, "scale", "nat", "ebpf", "--workload", "udp-pps-1k-flows", "--duration", "100ms")
	measured(t, rep, "nat", "ebpf")
}

// TestWorkloadsOfOneMachine: the report says which workloads of a suite are not
// measured and why; if the user has named one, the laboratory refuses it.
func TestWorkloadsOfOneMachine(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	_, token := startAgent(t, server)
	rep := report(t, client, token, "balancer", "routed", "--duration", "10ms")
	var why []string
	for _, u := range rep.Unavailable {
		why = append(why, u.Workload+": "+u.Reason)
	}
	if all := strings.Join(why, "\n"); strings.Count(all, "failover-") != 3 || !strings.Contains(all, "one clock") {
		t.Errorf("the report lists %q", why)
	}
	text, err := runLab(t, client, token, "balancer", "routed", "balance:ebpf", "--workload", "failover-killed")
	if err == nil || !strings.Contains(text, "one clock") {
		t.Errorf("%v: %s", err, text)
	}
}
