package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// shares is the part of a session's report about other users of the machine.
type shares struct {
	Shared       bool  `json:"shared"`
	Laboratories []int `json:"laboratories"`
	Runs         []struct {
		Disturbed bool
		Invalid   []string
		Round     int
		Ledger    struct {
			Wall, Other float64
			CPUs        int
		}
		Others []struct {
			PID     int
			Command string
			Seconds float64
		}
	}
}

func (r *room) shares(file string) shares {
	r.t.Helper()
	var s shares
	if err := json.Unmarshal(r.read(file), &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// agrees checks that the exit status says whether one of the report's runs counts, all of one measurement.
func (o outcome) agrees(t *testing.T, s shares, says []string) {
	t.Helper()
	code := 1
	for _, x := range s.Runs {
		if len(x.Invalid) == 0 {
			code = 0
		}
	}
	if code == 1 {
		says = append(says, "nothing was measured: ")
	}
	o.expect(t, code, says)
}

// TestBusyMachine checks that runs are discarded and repeated, up to a limit, while other processes
// use the CPU, and that the report names these processes. With --shared such runs count, and the
// report says so.
func TestBusyMachine(t *testing.T) {
	r := newRoom(t)
	r.sh("mount -t tmpfs none /run") // hide other sessions of these tests
	for range 4 {
		hog := &process{room: r, cmd: r.command("sh", "-c", "while :; do :; done")}
		hog.launch()
	}
	run := []string{"lab", "run", "host", "--workload", "tcp-rr", "--rounds", "4", "--duration", "100ms"}
	o := r.run(append(run, "--json", r.file("b.json"), "--shared=false")...)
	got := r.shares("b.json")
	o.agrees(t, got, []string{"other processes used", "more than 10 %", "(PID ", "--shared"})
	if !strings.Contains(o.stdout, "warning: other processes used") || !strings.Contains(o.stdout, "most by") {
		t.Errorf("the table does not name the busy processes:\n%s", o.stdout)
	}
	disturbed := 0
	for _, x := range got.Runs {
		busy := x.Ledger.Other > 0.1*x.Ledger.Wall*float64(x.Ledger.CPUs)
		if named := strings.Contains(fmt.Sprint(x.Invalid),
			"other processes used more than 10 % of the CPU time"); named != busy || busy && !x.Disturbed {
			t.Errorf("other processes used %.2f s of %.2f on %d CPUs: %q", x.Ledger.Other, x.Ledger.Wall, x.Ledger.CPUs,
				x.Invalid)
		}
		if busy {
			disturbed++
		}
		if busy && (len(x.Others) == 0 || x.Others[0].PID == 0 || x.Others[0].Command == "" ||
			x.Others[0].Seconds == 0) {
			t.Errorf("no process is named: %+v", x)
		}
	}
	const planned = 2 * 4 // the baseline runs twice in each round
	if disturbed < planned/2 || len(got.Runs) <= planned || len(got.Runs) > planned+planned/4 {
		t.Errorf("%d of %d runs were disturbed; want most of %d and some repeated", disturbed, len(got.Runs), planned)
	}
	o = r.undisturbed("b.json", append(run, "--shared")...)
	o.expect(t, 0, nil)
	if !strings.Contains(o.stdout, "no run was discarded because of it (--shared)") ||
		strings.Contains(o.stderr, "other processes") {
		t.Errorf("output of a shared session:\n%s%s", o.stdout, o.stderr)
	}
	if got = r.shares("b.json"); !got.Shared || len(got.Runs) != planned {
		t.Errorf("%d runs, shared %v", len(got.Runs), got.Shared)
	}
}

// TestTwoLaboratories checks that a second laboratory is refused with an error that names the
// first. With --shared it runs, and its report names the first.
func TestTwoLaboratories(t *testing.T) {
	r := newRoom(t)
	r.sh("mount -t tmpfs none /run")
	second := append([]string{"lab", "run", "host", "--workload", "tcp-rr"}, short...)
	for _, how := range []string{"--shared=false", "--shared"} {
		first := r.start("lab", "run", "host", "nat", "--workload", "tcp-rr", "--rounds", "100", "--duration", "10s",
			how)
		first.building()
		pid := fmt.Sprintf("(PID %d)", first.cmd.Process.Pid)
		r.refuse(2, []string{"another laboratory runs", pid, "--shared"}, append(second, "--shared=false")...)
		o := r.undisturbed("2.json", append(second, "--shared")...)
		o.expect(t, 0, nil)
		if got := r.shares("2.json").Laboratories; len(got) != 1 || got[0] != first.cmd.Process.Pid ||
			!strings.Contains(o.stdout, "another laboratory "+pid) {
			t.Errorf("beside %s with %s the report names %v:\n%s", pid, how, got, o.stdout)
		}
		if err := first.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		first.wait()
		r.until("no process is left", func(all []descendant) bool { return len(all) == 0 })
	}
	o := r.run(append(second, "--json", r.file("2.json"), "--shared=false")...)
	got := r.shares("2.json")
	if o.agrees(t, got, nil); got.Laboratories != nil {
		t.Error("the lock of a killed laboratory was not released")
	}
}
