package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error about an unknown name must list the valid names.
var (
	everySuite  = []string{"quick", "publish", "modes", "bridge-filter", "rules", "waterfall", "scale"}
	someLoads   = []string{"tcp-bulk", "tcp-rr-spin", "tcp-crr", "udp-pps"}
	everyClient = []string{"remote", "local", "peer"}
	everyTool   = []string{"iperf3", "qperf", "sockperf", "wrk", "h2load"}
)

func TestErrorsBeforeMeasuring(t *testing.T) {
	r := newRoom(t)
	folder := r.file("folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		name string
		args []string
		says []string
	}{
		{"unknown path", []string{"no-such"},
			append([]string{`"no-such"`, "docker-proxy", "hand-dnat"}, everySuite...)},
		{"unknown suite before a path", []string{"no-such", "nat"}, everySuite},
		{"unknown client", []string{"--client", "no-such"}, append([]string{`"no-such"`}, everyClient...)},
		{"unknown workload", []string{"--workload", "no-such"}, append([]string{`"no-such"`}, someLoads...)},
		{"unknown tool", []string{"--with", "no-such"}, append([]string{`"no-such"`}, everyTool...)},
		{"unknown baseline", []string{"--baseline", "no-such"}, []string{`"no-such"`, "host", "nat"}},
		{"baseline that a client cannot reach", []string{"rules", "--client", "remote,local"},
			[]string{"hand-dnat cannot be used", "local", "--client of remote"}},
		{"path that no client reaches", []string{"filter-on", "--client", "remote"},
			[]string{"filter-on cannot be used", "--client of local, peer"}},
		{"unknown flag", []string{"--no-such"}, []string{"--no-such", "--help"}},
		{"unknown output", []string{"-o", "no-such"}, []string{`"no-such"`, "table", "json"}},
		{"no rounds", []string{"--rounds", "0"}, []string{"rounds 0"}},
		{"no duration", []string{"--duration", "0s"}, []string{"duration 0s"}},
		{"condition cut short", []string{"--fail-if", "nat.bulk.ratio<"},
			[]string{"fail-if", "column 16", "\n    nat.bulk.ratio<\n" + strings.Repeat(" ", 19) + "^\n"}},
		{"condition on an unknown path", []string{"--fail-if", "gnat.bulk.ratio<1"}, []string{"gnat", "nat"}},
		{"condition on an unknown field", []string{"--fail-if", "nat.bulk.rtio<1"}, []string{"rtio", "ratio_low"}},
		{"condition on what is not measured", []string{"nat", "--fail-if", "proxy.bulk.ratio<1"}, []string{"proxy"}},
		{"report into no folder", []string{"--json", r.file("none/x.json")}, []string{"none/x.json"}},
		{"report onto a folder", []string{"--html", folder}, []string{folder, "folder"}},
		{"report where nothing can be written", []string{"--bench", "/proc/x.txt"}, []string{"/proc/x.txt"}},
		{"two reports to one file", []string{"--json", r.file("x"), "--html", r.file("x")}, []string{"two reports"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			r := *r
			r.t = t
			// If the error were not found first, this run would not end before the test.
			r.refuse(2, s.says, append([]string{"lab", "run", "--duration", "10h", "--rounds", "1000000"},
				s.args...)...)
		})
	}
}

func TestWrongCommands(t *testing.T) {
	r := newRoom(t)
	for _, args := range [][]string{{}, {"no-such"}, {"lab"}, {"lab", "no-such"}, {"paths", "extra"}, {"lab", "report"},
		{"lab", "compare", "one"}, {"lab", "list", "-o", "markdown"}, {"version", "extra"}} {
		t.Run(strings.Join(append([]string{"fairlead"}, args...), " "), func(t *testing.T) {
			r := *r
			r.t = t
			r.refuse(2, []string{"fairlead: "}, args...)
		})
	}
}

// TestNotRoot checks that an ordinary user, and root without capabilities, get an error that says
// what is missing.
func TestNotRoot(t *testing.T) {
	for name, as := range map[string][]string{
		"ordinary user": {"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"},
		"root without capabilities": {"setpriv", "--bounding-set", "-sys_admin,-net_admin", "--inh-caps",
			"-sys_admin,-net_admin"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			p := &process{room: r, cmd: r.command(append(as, binary, "lab", "run")...)}
			p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errors
			p.launch()
			p.wait().expect(t, 2, []string{"root"})
		})
	}
}

func TestHelpNeedsNoRoot(t *testing.T) {
	r := newRoom(t)
	for _, args := range [][]string{{"--help"}, {"lab", "run", "--help"}, {"version"}, {"lab", "list"},
		{"completion", "bash"}, {"paths", "-o", "markdown"}, {"paths"}, {"paths", "-o", "json"}} {
		as := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", binary}
		if out, err := r.command(append(as, args...)...).CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("fairlead %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestFailIf checks that a condition that is true prints its figures and exits with 1, after the
// reports are written.
func TestFailIf(t *testing.T) {
	r := newRoom(t)
	run := append([]string{"lab", "run", "nat", "--workload", "tcp-bulk"}, figures...)
	o := r.undisturbed("n.json", append(run, "--fail-if", "nat.bulk.ratio > 0", "--fail-if", "nat.bulk.rounds < 1")...)
	o.expect(t, 1, []string{"fail-if: nat.tcp-bulk.remote.throughput.ratio = ", "condition holds"})
	if strings.Contains(o.stderr, "rounds") {
		t.Errorf("a condition that does not hold is reported: %s", o.stderr)
	}
	ratio := ""
	for _, row := range decode(t, r.read("n.json")).Summary {
		if row["path"] == "nat" && row["metric"] == "throughput" {
			ratio = fmt.Sprintf("%.4g", row["ratio"])
		}
	}
	if ratio == "" || !strings.Contains(o.stderr, ratio) {
		t.Errorf("the message does not give the ratio %s: %s", ratio, o.stderr)
	}
	if !strings.Contains(o.stdout, "nat") {
		t.Errorf("the table is missing: %s", o.stdout)
	}
	o = r.undisturbed("n.json", append(run, "--fail-if", "nat.bulk.ratio < 0", "--fail-if",
		"nat.rounds < 1 || host.bulk.value == 0")...)
	o.expect(t, 0, nil)
	if o.stderr != "" {
		t.Errorf("no condition is true, but standard error has: %s", o.stderr)
	}
}

// TestMissingPrograms checks that the table and the JSON name missing programs with the reason, and
// that all other paths are measured. The exit code is 1 if a path that the user named is missing.
func TestMissingPrograms(t *testing.T) {
	r := newRoom(t)
	r.replace("", "docker-proxy", "qperf")
	run := append([]string{"lab", "run", "nat", "docker-proxy", "--workload", "tcp-rr"}, short...)
	o := r.run(append(run, "--json", r.file("d.json"))...)
	o.expect(t, 1, []string{"path docker-proxy was not measured: "})
	got := decode(t, r.read("d.json"))
	if len(got.Absent) != 1 || got.Absent[0].Path != "docker-proxy" ||
		!strings.Contains(got.Absent[0].Reason, "docker.io") {
		t.Errorf("unavailable: %+v", got.Absent)
	}
	if !strings.Contains(o.stderr, "path docker-proxy is not measured") {
		t.Errorf("the missing path is not reported before measuring: %s", o.stderr)
	}
	if !strings.Contains(o.stdout, "docker-proxy") || !strings.Contains(o.stdout, "not installed") {
		t.Errorf("the table does not name the missing program:\n%s", o.stdout)
	}
	if out := r.succeed("lab", "list"); !strings.Contains(out, "docker-proxy is not installed") {
		t.Errorf("the list does not name the missing program:\n%s", out)
	}
	if len(got.Runs) != 3 {
		t.Errorf("%d runs, want the baseline's two and nat's", len(got.Runs))
	}
	r.refuse(2, []string{"no path but the baseline can be built on this host: docker-proxy: "},
		append([]string{"lab", "run", "docker-proxy"}, short...)...)
	r.refuse(2, []string{"qperf is not installed"}, append(run, "--with", "qperf")...)
	r.refuse(2, []string{"baseline docker-proxy", "not installed"}, append(run, "--baseline", "docker-proxy")...)
}

// TestPathBuildFailure checks that the reason of an unavailable path is the output of the program
// that failed.
func TestPathBuildFailure(t *testing.T) {
	r := newRoom(t)
	r.replace("#!/bin/sh\necho out of order >&2\nexit 3\n", "nft")
	o := r.run(append([]string{"lab", "run", "rules", "--baseline", "nat", "--workload", "tcp-rr", "-o", "json"},
		short...)...)
	o.expect(t, 1, []string{"path hand-dnat was not measured: ", "out of order"}) // although the user did not name it
	got := decode(t, []byte(o.stdout))
	if len(got.Absent) != 1 || got.Absent[0].Path != "hand-dnat" ||
		!strings.Contains(got.Absent[0].Reason, "out of order") {
		t.Errorf("unavailable: %+v", got.Absent)
	}
}

// TestTooLittleMemory checks that a session is refused if it might make the machine swap or run out
// of memory.
func TestTooLittleMemory(t *testing.T) {
	r := newRoom(t)
	r.write("meminfo", []byte("MemTotal: 4000000 kB\nMemAvailable: 100000 kB\n"))
	r.sh("mount --bind " + r.file("meminfo") + " /proc/meminfo")
	r.refuse(2, []string{"97 MB of memory", "end other processes"}, "lab", "run")
}

// TestKernelWithoutNftables checks that paths that need nftables are reported with the reason, and
// that the other paths are measured.
func TestKernelWithoutNftables(t *testing.T) {
	r := newRoom(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	withoutNft := func(args ...string) outcome {
		p := &process{room: r, cmd: r.command(append([]string{self, binary}, args...)...)}
		p.cmd.Env = append(p.cmd.Env, hideNftables+"=1")
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errors
		p.launch()
		return p.wait()
	}
	withoutNft(append([]string{"lab", "run", "nat", "--workload", "tcp-rr"}, short...)...).expect(t, 2,
		[]string{"no path but the baseline can be built on this host: nat: ", "nftables"})
	o := withoutNft(append([]string{"lab", "run", "physical", "nat", "--workload", "tcp-rr", "-o", "json"},
		short...)...)
	o.expect(t, 1, []string{"path nat was not measured: "})
	got := decode(t, []byte(o.stdout))
	if len(got.Runs) != 3 || len(got.Absent) != 1 || got.Absent[0].Path != "nat" ||
		!strings.Contains(got.Absent[0].Reason, "nftables") {
		t.Errorf("%d runs, unavailable: %+v", len(got.Runs), got.Absent)
	}
	o = withoutNft("paths")
	o.expect(t, 0, nil)
	if !strings.Contains(o.stdout, "bridge+nat cannot be built on this host: ") {
		t.Errorf("the table of paths does not name the reason:\n%s", o.stdout)
	}
	withoutNft("lab", "run", "host", "--baseline", "nat").expect(t, 2, []string{"baseline nat", "nftables"})
}

// TestUnreachableClient checks that a path that a client cannot reach is reported.
func TestUnreachableClient(t *testing.T) {
	r := newRoom(t)
	o := r.undisturbed("c.json", append([]string{"lab", "run", "hand-dnat", "--client", "remote,local", "--workload",
		"tcp-rr"}, short...)...)
	o.expect(t, 0, nil)
	got := decode(t, r.read("c.json"))
	if len(got.Absent) != 1 || got.Absent[0].Path != "hand-dnat" || !strings.Contains(got.Absent[0].Reason, "local") {
		t.Errorf("unavailable: %+v", got.Absent)
	}
	if len(got.Runs) != 5 || !strings.Contains(o.stdout, "the client local cannot reach it") {
		t.Errorf("%d runs, want the baseline's four and hand-dnat's one:\n%s", len(got.Runs), o.stdout)
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	s := quickSession(t)
	r := newRoom(t)
	r.write("good.json", s.json)
	r.write("cut.json", s.json[:len(s.json)/2])
	r.write("other.json", []byte(`{"name": "package", "version": "1.0"}`))
	r.write("newer.json", []byte(strings.Replace(string(s.json), `"format": 1`, `"format": 99`, 1)))
	r.write("text.json", []byte("hello\n"))
	r.write("empty.json", nil)
	for file, says := range map[string][]string{
		"cut.json":   {"incomplete"},
		"other.json": {"fairlead lab run --json"},
		"newer.json": {"newer fairlead"},
		"text.json":  {"not JSON"},
		"empty.json": {"empty.json"},
		"none.json":  {"no such file"},
		"":           {"is a directory"},
	} {
		t.Run("report "+file, func(t *testing.T) {
			r := *r
			r.t = t
			r.refuse(2, append(says, filepath.Base(r.file(file))), "lab", "report", r.file(file))
			r.refuse(2, says, "lab", "compare", r.file("good.json"), r.file(file))
		})
	}
}
