package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestFamily6 checks that each kind of path carries traffic over IPv6, also of a tool. A run is valid
// only if the client's counters of IPv6 packets have increased by what the workload received.
func TestFamily6(t *testing.T) {
	r := newRoom(t)
	for file, args := range map[string][]string{
		"paths.json": {"attach", "host", "routed", "hand-dnat", "cni-bridge", "macvlan", "vxlan-2",
			"hand-vxlan", "device", "pasta", "slirp4netns", "socket", "ebpf", "nat", "proxy", "docker-proxy",
			"balance:nft", "docker:publish", "--workload", "tcp-rr"},
		"local.json":   {"publish", "nat", "--client", "local,peer", "--workload", "tcp-rr,udp-bulk"},
		"gateway.json": {"gateway", "gateway:nginx", "gateway:fairlead", "--workload", "http-rr"},
		"failed.json":  {"balancer", "balance:ebpf", "balance:haproxy", "--workload", "failover-killed"},
		"tools.json":   {"quick", "host", "--with", "wrk", "--workload", "tcp-rr"},
	} {
		all := append([]string{"lab", "run"}, args...)
		all = append(all, "--family", "6", "--rounds", "1", "--duration", "50ms", "--shared")
		code := 0
		if file == "paths.json" {
			code = 1 // two of the named paths cannot be measured
		}
		r.undisturbed(file, all...).expect(t, code, nil)
		got := decode(t, r.read(file))
		if got.Family != 6 {
			t.Errorf("%s: the report has family %d, want 6", file, got.Family)
		}
		for _, x := range got.Runs {
			if x.Proof == nil || !x.Proof.OK || len(x.Invalid) > 0 {
				t.Errorf("%s, %s, %s: %+v %v", x.Path, x.Workload, x.Tool, x.Proof, x.Invalid)
			}
		}
		known := []string{"slirp4netns", "docker:publish"}
		for _, a := range got.Absent {
			if !slices.Contains(known, a.Path) || !strings.Contains(a.Reason, "IP") {
				t.Errorf("%s is not measured: %s", a.Path, a.Reason)
			}
		}
	}
}

// TestFamiliesDiffer checks that a comparison of sessions of different families says so.
func TestFamiliesDiffer(t *testing.T) {
	r := newRoom(t)
	for _, family := range []string{"4", "6"} {
		r.undisturbed(family+".json", append([]string{"lab", "run", "quick", "host", "--workload", "tcp-rr", "--family",
			family}, figures...)...).expect(t, 0, nil)
	}
	var got struct{ Warnings []string }
	if err := json.Unmarshal([]byte(r.succeed("lab", "compare", r.file("4.json"), r.file("6.json"), "-o", "json")),
		&got); err != nil {
		t.Fatal(err)
	}
	if want := "address family differs: IPv4 before, IPv6 now"; !slices.Contains(got.Warnings, want) {
		t.Errorf("got the warnings %q, want %q", got.Warnings, want)
	}
	if out := r.succeed("lab", "report", r.file("6.json")); !strings.Contains(out, " · IPv6 · ") {
		t.Errorf("the table does not name the family:\n%s", out)
	}
}
