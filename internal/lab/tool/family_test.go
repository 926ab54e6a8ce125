package tool

import (
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// TestTargetsOfIPv6: each tool that is driven over IPv6 gets the address in the form that
// it reads, and datagrams that fit into a packet.
func TestTargetsOfIPv6(t *testing.T) {
	const target = "2001:db8::2"
	for workload, want := range map[string]map[string]string{
		"tcp-bulk": {"iperf3": target},
		"udp-bulk": {"iperf3": "1452"},
		"tcp-rr":   {"wrk": "http://[2001:db8::2]:8082/", "qperf": target},
		"h2-rr":    {"h2load": "[2001:db8::2]:8083"},
	} {
		w, _ := suite.Suite{}.FindWorkload(workload)
		for name, arg := range want {
			if got := find(name).Client(w, target, 1); !IPv6(name) || !slices.Contains(got, arg) {
				t.Errorf("%s, %s: %q, want the argument %s", name, workload, got, arg)
			}
		}
	}
	if loaded, _ := (suite.Suite{}).FindWorkload("tcp-rr-loaded"); loaded.Spec.Background == 0 {
		t.Error("tcp-rr-loaded has no streams in the background")
	} else if _, ok := For("qperf", loaded); ok {
		t.Error("qperf measures a round trip without the streams in the background")
	}
	if files, err := nginxFiles(result.IPv6); err != nil || !strings.Contains(files[0], "listen [::]:8082;") {
		t.Errorf("nginx does not listen on IPv6: %v\n%q", err, files)
	}
}
