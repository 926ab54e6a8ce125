package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestAttach checks that each way to attach, Fairlead's and those of other programs, carries
// traffic, with a path proof. Every path that `fairlead paths` reports as available must be
// measured.
func TestAttach(t *testing.T) {
	r := newRoom(t)
	r.undisturbed("a.json", "lab", "run", "attach", "--workload", "tcp-bulk,tcp-bulk-both-1,tcp-rr", "--rounds", "1",
		"--duration", "100ms").expect(t, 0, nil)
	got := decode(t, r.read("a.json"))
	measured := map[string]bool{}
	for _, x := range got.Runs {
		measured[x.Path] = true
		if x.Proof == nil || !x.Proof.OK || len(x.Invalid) > 0 {
			t.Errorf("%s, %s: %+v %v", x.Path, x.Workload, x.Proof, x.Invalid)
		}
		if user := x.Path == "slirp4netns" || x.Path == "pasta"; user != (x.Ledger["proxy"] > 0) {
			t.Errorf("%s, %s: the proxy process used %v s of CPU time", x.Path, x.Workload, x.Ledger["proxy"])
		}
		checkLedger(t, x)
	}
	for path := range measured {
		for _, metric := range []string{"tcp-bulk throughput", "tcp-bulk-both-1 throughput", "tcp-rr latency_p50"} {
			wantSane(t, got, "fairlead", path, metric)
		}
	}
	var table []struct{ Driver, Via, Unavailable string }
	if err := json.Unmarshal([]byte(r.succeed("paths", "-o", "json")), &table); err != nil {
		t.Fatal(err)
	}
	for _, p := range table {
		if p.Via == "" && p.Driver != "none" && measured[p.Driver] != (p.Unavailable == "") {
			t.Errorf("%s: measured is %v, and `fairlead paths` says %q", p.Driver, measured[p.Driver], p.Unavailable)
		}
	}
	for _, a := range got.Absent {
		if !strings.Contains(a.Path, "ipvlan") || !strings.Contains(a.Reason, "ipvlan") {
			t.Errorf("%s is not measured: %s", a.Path, a.Reason)
		}
	}
}

// TestMTUIsAFactor checks that every path is measured at every MTU, in the same rounds, under a
// name that users can select.
func TestMTUIsAFactor(t *testing.T) {
	r := newRoom(t)
	r.undisturbed("m.json", append([]string{"lab", "run", "attach", "routed", "hand-vxlan", "--mtu", "9000,1500",
		"--workload", "tcp-bulk"}, figures...)...).expect(t, 0, nil)
	got := decode(t, r.read("m.json"))
	var paths []string
	for _, x := range got.Runs {
		paths = append(paths, x.Path)
		if x.Proof == nil || !x.Proof.OK {
			t.Errorf("%s: %+v %v", x.Path, x.Proof, x.Invalid)
		}
	}
	slices.Sort(paths)
	want := []string{"hand-vxlan", "hand-vxlan-mtu9000", "host", "host-mtu9000", "host-mtu9000", "routed",
		"routed-mtu9000"}
	if !slices.Equal(paths, want) {
		t.Errorf("measured %v, want %v", paths, want)
	}
	for _, row := range got.Summary {
		if row["baseline"] != "host-mtu9000" {
			t.Errorf("%s is compared with %s", row["path"], row["baseline"])
		}
	}
	r.undisturbed("m.json", append([]string{"lab", "run", "routed-mtu65520", "--workload", "tcp-rr", "--fail-if",
		"routed-mtu65520.rr.value <= 0"}, figures...)...).expect(t, 0, nil)
	r.refuse(2, []string{"mtu 1279: want 1280 to 65535"}, "lab", "run", "--mtu", "1279")
	r.refuse(2, []string{"routed-mtu9000 has an MTU already"}, "lab", "run", "routed-mtu9000", "--mtu", "1500")
	r.refuse(2, []string{`no suite or path "routed-mtu70000"`}, "lab", "run", "routed-mtu70000")
}

// TestMissingPeers checks that each missing program is reported with the package that contains it.
func TestMissingPeers(t *testing.T) {
	r := newRoom(t)
	r.replace("", "pasta", "slirp4netns", "/usr/lib/cni/ptp")
	list := r.succeed("lab", "list")
	for _, says := range []string{
		"pasta is not installed (Debian: passt)",
		"slirp4netns is not installed (Debian: slirp4netns)",
		"cni/ptp is not installed (Debian: containernetworking-plugins)",
	} {
		if !strings.Contains(list, says) {
			t.Errorf("the list does not contain %q:\n%s", says, list)
		}
	}
	o := r.run(append([]string{"lab", "run", "attach", "cni-bridge", "cni-ptp", "pasta", "--workload", "tcp-rr",
		"--json", r.file("p.json")}, short...)...)
	o.expect(t, 1, []string{"path cni-ptp is not measured", "path pasta is not measured"})
	if got := decode(t, r.read("p.json")); len(got.Absent) != 2 || len(got.Runs) != 3 {
		t.Errorf("%d runs, unavailable: %+v", len(got.Runs), got.Absent)
	}
}
