package e2e_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedConditions checks that the suite publish accepts every condition of the guide. A
// report that cannot be written ends each command before it measures.
func TestDocumentedConditions(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide/laboratory.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("`([a-z][a-z0-9.:_-]* *(?:<|>|<=|>=) *[^`]*)`").FindAllStringSubmatch(string(guide), -1)
	if len(found) < 2 {
		t.Fatalf("the guide has the conditions %q", found)
	}
	r := newRoom(t)
	for _, m := range found {
		o := r.run("lab", "run", "publish", "--json", "/proc/x", "--fail-if", m[1])
		o.expect(t, 2, []string{"/proc/x"})
	}
}

// TestConditionsOnMeasuredFigures checks that conditions may name every figure of a session before
// it is measured.
func TestConditionsOnMeasuredFigures(t *testing.T) {
	r := newRoom(t)
	args := []string{"lab", "run", "quick", "docker-proxy", "nat", "proxy", "--json", "/proc/x"}
	figures := ""
	for _, row := range decode(t, quickSession(t).json).Summary {
		figure := fmt.Sprintf("%s.%s.%s.%s", row["path"], row["workload"], row["client"], row["metric"])
		args = append(args, "--fail-if", figure+" < -1")
		figures += figure + "\n"
	}
	for _, want := range []string{"nat.tcp-crr.remote.latency_p99", "nat.tcp-rr.remote.latency_mean",
		"nat.udp-pps.remote.loss", "nat.tcp-rr-loaded.remote.latency_p99", "nat.tcp-rr-loaded.remote.throughput"} {
		if !strings.Contains(figures, want) {
			t.Errorf("%s is not measured", want)
		}
	}
	o := r.run(args...)
	o.expect(t, 2, []string{"/proc/x"})
}
