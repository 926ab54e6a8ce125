package e2e_test

import (
	"strings"
	"testing"
)

// TestNothingMeasured checks that a laboratory that has measured nothing is no success: the exit
// code, the error and the first sentence say so, with the reason. A second round fails for the
// same reason, and nothing is left.
func TestNothingMeasured(t *testing.T) {
	for name, s := range map[string]struct {
		args    []string
		prepare func(*room)
		// why is the reason in the report, and said its part that the error has: that leaves out the middle of long texts.
		why, said string
	}{
		"no CPU controller": {
			args: []string{"site", "site:fairlead-4", "--baseline", "site:fairlead-1", "--workload", "visits,knee"},
			prepare: func(r *room) {
				r.sh("mount --bind /dev/null " + cgroups() + "/cgroup.controllers")
				r.sh("[ ! -d /sys/fs/cgroup/cpu ] || mount -t tmpfs none /sys/fs/cgroup/cpu")
			},
			why:  "the CPU controller is in neither cgroup v2 nor",
			said: "the CPU controller is in neither cgroup v2 nor",
		},
		"engine refuses": {
			args:    []string{"docker-start", "docker:publish", "--workload", "docker-run-udp"},
			prepare: func(r *room) { r.replace("#!/bin/sh\nexit 3\n", "runc") },
			why:     "runc did not terminate successfully: exit status 3",
			said:    "terminate successfully: exit status 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			s.prepare(r)
			before := r.snapshot()
			o := r.run(append([]string{"lab", "run", "--rounds", "2", "--duration", "100ms", "--json",
				r.file("n.json")}, s.args...)...)
			r.untouched(before)
			o.expect(t, 1, []string{"fairlead: nothing was measured: all ", s.said})
			if !strings.HasPrefix(o.stdout, "Nothing was measured: all ") {
				t.Errorf("the first sentence does not say that nothing was measured:\n%s", o.stdout)
			}
			for _, x := range decode(t, r.read("n.json")).Runs {
				if len(x.Invalid) != 1 || !strings.Contains(x.Invalid[0], s.why) {
					t.Errorf("round %d of %s was discarded because of %q, want %q", x.Round, x.Path, x.Invalid, s.why)
				}
			}
		})
	}
}

// TestPartlyMeasured checks that a laboratory that has measured a part is no success, and that the
// other part has its figures.
func TestPartlyMeasured(t *testing.T) {
	r := newRoom(t)
	r.replace("#!/bin/sh\necho out of order >&2\nexit 3\n", "wrk")
	o := r.undisturbed("p.json", append([]string{"lab", "run", "host", "nat", "--workload", "tcp-rr", "--with", "wrk"},
		short...)...)
	o.expect(t, 1, []string{"2 of 4 measurements have no figure: ", "round trip, wrk", "out of order"})
	if !strings.HasPrefix(o.stdout, "Only a part was measured: 2 of 4 measurements have no figure.") {
		t.Errorf("the first sentence does not say that a part is missing:\n%s", o.stdout)
	}
	for _, x := range decode(t, r.read("p.json")).Runs {
		if got := len(x.Invalid) == 0; got != (x.Tool == "fairlead") {
			t.Errorf("%s with %s: %v", x.Path, x.Tool, x.Invalid)
		}
	}
}
