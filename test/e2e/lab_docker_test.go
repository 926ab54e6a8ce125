package e2e_test

import (
	"slices"
	"syscall"
	"testing"

	"fairlead/test/engines"
)

// TestDockerLaboratory measures containers of each engine, on Docker's networks and on Fairlead's.
// The two engines together have every path.
func TestDockerLaboratory(t *testing.T) {
	client := map[string]string{"debian": "remote", "2026": "local"}
	paths := map[string][]string{
		"debian": {"docker:publish", "docker:macvlan", "docker:fairlead-ebpf", "docker:fairlead-routed",
			"docker:fairlead-macvlan", "docker:fairlead-ebpf-ports300"},
		"2026": {"docker:bridge", "docker:publish-noproxy", "docker:fairlead-nat", "docker:fairlead-proxy",
			"docker:fairlead-bridge", "docker:publish-noproxy-ports3"},
	}
	for name, programs := range engines.All(t) {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			args := []string{"lab", "run", "docker", "--client", client[name], "--workload", "tcp-rr,docker-run-udp",
				"--rounds", "1", "--duration", "50ms"}
			args = append(args, paths[name]...)
			if programs != "" {
				args = append(args, "--docker-dir", programs)
			}
			r.undisturbed("d.json", args...).expect(t, 0, nil)
			got := decode(t, r.read("d.json"))
			for _, path := range paths[name] {
				if !slices.ContainsFunc(got.Runs, func(x run) bool { return x.Path == path }) {
					t.Errorf("%s was not measured: %+v", path, got.Absent)
				}
			}
			for _, x := range got.Runs {
				if x.Proof == nil || !x.Proof.OK {
					t.Errorf("%s, %s: %+v %v", x.Path, x.Workload, x.Proof, x.Invalid)
				}
			}
		})
	}
}

// TestQuickSuiteMeasuresDockerPublish checks that the suite quick measures Docker's own -p if
// Docker is installed.
func TestQuickSuiteMeasuresDockerPublish(t *testing.T) {
	r := newRoom(t)
	r.undisturbed("q.json", append([]string{"lab", "run", "--workload", "tcp-rr"}, short...)...).expect(t, 0, nil)
	got := decode(t, r.read("q.json"))
	i := slices.IndexFunc(got.Runs, func(x run) bool { return x.Path == "docker:publish" })
	if i < 0 {
		t.Fatalf("docker:publish was not measured: %+v", got.Absent)
	}
	if x := got.Runs[i]; x.Proof == nil || !x.Proof.OK {
		t.Errorf("%s: %+v %v", x.Path, x.Proof, x.Invalid)
	}
}

// TestDockerLaboratoryLeavesNothing checks that the session after one that was killed removes
// everything that was left.
func TestDockerLaboratoryLeavesNothing(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	p := r.start("lab", "run", "docker", "docker:publish", "--client", "remote", "--workload", "tcp-rr", "--duration",
		"1m")
	p.measuring()
	p.signal(syscall.SIGKILL)
	p.wait()
	r.until("no process is left", func(all []descendant) bool { return len(all) == 0 })
	o := r.undisturbed("h.json", append([]string{"lab", "run", "host", "--workload", "tcp-rr"}, short...)...)
	o.expect(t, 0, nil)
	r.untouched(before)
}
