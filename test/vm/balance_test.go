package vm

import (
	"slices"
	"strings"
	"testing"
)

// balancing lists the modules of IPVS and of its schedulers, of the tunnels that its real servers
// decapsulate, and of the rules that protect virtual addresses. A guest has no modprobe that could
// load them on demand.
var balancing = slices.Concat(networking,
	[]string{"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_sh", "ip_vs_mh", "ip_vs_sed", "ip_vs_nq",
		"ipip", "ip6_tunnel", "fou", "nft_reject_inet"})

// TestBalancer runs the conformance suite on a kernel with IPVS. Each trial runs with both
// protocols and with both families, but not in all combinations, which would take twice as long in
// an emulator. A complete daemon runs a service on data plane ipvs and reports it. The kernel's
// tunnel devices also decapsulate the packets of data plane ebpf, and clsact runs its programs at
// both hooks of links.
func TestBalancer(t *testing.T) {
	o := balance(t, forBalancer, "-planes=ipvs,ebpf",
		"-test.run=TestConformance/ipvs/./tcp/ipv4|TestConformance/ipvs/./udp/ipv6|TestConformance/ebpf/(tunnel(_in_UDP)?$|the_host_itself|hop_limit)/tcp/ipv4|TestConformance/ebpf/(tunnel(_in_UDP)?$|the_host_itself|hop_limit)/udp/ipv6|(TestSession|TestCounters)/ipvs")
	for _, trial := range []string{"TestConformance/ipvs/spread_over_sandboxes/tcp/ipv4",
		"TestConformance/ipvs/a_failed_server/tcp/ipv4",
		"TestConformance/ipvs/services_of_other_programs/udp/ipv6", "TestConformance/ipvs/tunnel_in_UDP/tcp/ipv4",
		"TestConformance/ebpf/tunnel/tcp/ipv4",
		"TestConformance/ebpf/tunnel_in_UDP/udp/ipv6", "TestConformance/ebpf/the_host_itself/udp/ipv6",
		"TestConformance/ebpf/hop_limit/tcp/ipv4", "TestSession/ipvs", "TestCounters/ipvs"} {
		if !strings.Contains(o.Said, "--- PASS: "+trial+" ") {
			t.Errorf("%s did not pass", trial)
		}
	}
	if o.Err != nil || t.Failed() {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}

// TestBalancerOnNewerKernel runs some of these trials with IPVS in Linux 6.12.
func TestBalancerOnNewerKernel(t *testing.T) {
	o := balance(t, forNewer, "-planes=ipvs",
		"-test.run=TestConformance/ipvs/(spread|forged|counts)/tcp/ipv4")
	for _, trial := range []string{"spread_over_sandboxes", "forged_SYNs", "counts"} {
		if !strings.Contains(o.Said, "--- PASS: TestConformance/ipvs/"+trial+"/tcp/ipv4 ") {
			t.Errorf("%s did not pass", trial)
		}
	}
	if o.Err != nil || t.Failed() {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}

// balance runs tests of package balance.
func balance(t *testing.T, m *shared, flags ...string) Outcome {
	t.Helper()
	return m.run(t, balancing,
		[]string{"bridge", "cat", "grep", "ip", "ipvsadm", "nft", "sed", "sh", "sort", "ss", "sysctl"},
		Task{"fairlead/test/balance", flags})
}
