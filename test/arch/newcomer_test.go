package arch_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/threat"
)

// newcomer is what it takes to add something, as the page says.
type newcomer struct {
	// kind is the first cell of the page's row.
	kind string
	// create are the paths in the row's second cell, and files the files that the trial
	// creates there, each with the file in testdata that has its text.
	create []string
	files  map[string]string
	// insert are the lines for existing files, and most is how many of these files
	// the page may list.
	insert []insertion
	most   int
}

var newcomers = []newcomer{
	{"driver", []string{"internal/driver/NAME"}, map[string]string{
		"internal/driver/trial/driver.go": "testdata/driver.go",
		"internal/lab/rig/trial_test.go":  "testdata/rig_test.txt",
	}, []insertion{
		{"internal/model/driver.go", `	DriverDevice `, `	DriverTrial Driver = "trial"`},
		{"internal/model/driver.go", `	{DriverDevice, `, `	{DriverTrial, Traits{RoutesPeers: true}},`},
	}, 1},
	{"publish mode", []string{"internal/publish/NAME"},
		map[string]string{"internal/publish/trial/mode.go": "testdata/mode.go"}, []insertion{
			{"internal/paths/paths.go", `	"fairlead/internal/publish/socket"`,
				`	trialmode "fairlead/internal/publish/trial"`},
			{"internal/paths/paths.go", `		nat.Mode{},`, `		trialmode.Mode{},`},
		}, 1},
	{"data plane", []string{"internal/balance/NAME"},
		map[string]string{"internal/balance/trial/plane.go": "testdata/plane.go"}, []insertion{
			{"internal/model/plane.go", `	PlaneIPVS `, `	PlaneTrial Plane = "trial"`},
			{"internal/model/plane.go", `	{PlaneIPVS, `, `	{PlaneTrial, PlaneTraits{NeedsLocalAddress: true}},`},
		}, 3},
	{"scheduler", nil, map[string]string{"internal/balance/trial_test.go": "testdata/scheduler_test.txt"}, []insertion{
		{"internal/model/scheduler.go", `	NeverQueue `, `	SchedulerTrial Scheduler = "trial"`},
		{"internal/model/scheduler.go", `	{NeverQueue, `, `	{SchedulerTrial, SchedulerTraits{Hashes: FullKey}},`},
	}, 1},
	{"check of real servers", []string{"internal/health/NAME.go"},
		map[string]string{"internal/health/trial.go": "testdata/check.go"}, []insertion{
			{"internal/model/check.go", `	CheckDocker `, `	CheckTrial CheckType = "trial"`},
			{"internal/model/check.go", `		CheckDocker,`, `		CheckTrial,`},
		}, 1},
	{"middleware", []string{"internal/gateway/middleware/GROUP/NAME.go"},
		map[string]string{"internal/gateway/middleware/rewrite/trial.go": "testdata/middleware.go"}, []insertion{
			{"internal/model/gateway/middleware.go", `	StripPrefixRegex *StripPrefixRegex`,
				"	Trial *Trial `package:\"rewrite\"`"},
			{"internal/model/gateway/middleware.go", `	Prefix string`,
				"}\n\n// Trial sets a field of responses.\ntype Trial struct {\n	Text string"},
		}, 1},
	{"provider", []string{"internal/frontend/traefik/provider/NAME.go"},
		map[string]string{"internal/frontend/traefik/provider/trial.go": "testdata/provider.go"}, []insertion{
			{"internal/model/gateway/providers.go", `	File  *File`, `	Trial *TrialProvider`},
			{"internal/model/gateway/providers.go", `func (p Providers) Any() bool`,
				"\n// TrialProvider is the provider of routers from a file of JSON.\ntype TrialProvider struct{ Path string }"},
		}, 1},
	{"check of the doctor", []string{"internal/explain/doctor/NAME.go"}, map[string]string{
		"internal/explain/doctor/trial.go":      "testdata/doctor.go",
		"internal/explain/doctor/trial_test.go": "testdata/doctor_test.txt",
	}, []insertion{{"internal/explain/doctor/doctor.go", `		{"bridge-filter", `, `		{"trial", trial},`}}, 1},
	{"object in the kernel", []string{"internal/kernel", "internal/plan/NAME.go"}, map[string]string{
		"internal/plan/trial.go":             "testdata/object.go",
		"internal/kernel/rtnl/link/trial.go": "testdata/object_kernel.go",
		"internal/kernel/trial_test.go":      "testdata/object_test.txt",
	}, []insertion{
		{"internal/kernel/kinds.go", `	linkKind, `, `	trialKind,`},
		{"internal/kernel/kinds_rtnl.go", `func devicesOf(`, trialKind},
	}, 2},
}

// trialKind is what the kernel does with the object of the trial.
const trialKind = `
var trialKind = kind[plan.Trial]{
	set:  on(linksOf, (*link.Handle).SetTrial),
	del:  on(linksOf, (*link.Handle).DelTrial),
	read: reading(linksOf, (*link.Handle).ReadTrial),
}`

// TestNewcomersTouchWhatThePageLists checks that the page lists every file that the
// trials touch, and no more files than a newcomer should have to touch.
func TestNewcomersTouchWhatThePageLists(t *testing.T) {
	for _, n := range newcomers {
		created, listed := newcomerRow(t, n.kind)
		for _, i := range n.insert {
			if !slices.Contains(listed, i.file) {
				t.Errorf("%s: the trial touches %s, and the page does not list it", n.kind, i.file)
			}
		}
		if len(listed) > n.most {
			t.Errorf("%s: the page lists %q to touch, want at most %d", n.kind, listed, n.most)
		}
		if !slices.Equal(created, n.create) {
			t.Errorf("%s: the page lists %q to create, want %q", n.kind, created, n.create)
		}
	}
}

// TestNewcomers adds one of each kind to a copy of the tree, all with the name trial, and generates the lists. The copy
// builds, its own tests find the lists complete, its command knows the names, its kernel carries out the object, and
// its gateway serves what the provider and the middleware say.
func TestNewcomers(t *testing.T) {
	t.Parallel()
	files, insertions := map[string]string{}, []insertion{}
	for _, n := range newcomers {
		maps.Copy(files, n.files)
		insertions = append(insertions, n.insert...)
	}
	dir, command := t.TempDir(), filepath.Join(t.TempDir(), "fairlead")
	run(t, "go", "run", "-overlay", overlayOf(t, files, insertions), "./test/lists", dir)
	addGenerated(t, files, dir)
	overlay := overlayOf(t, files, insertions)
	run(t, "go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", command, "./cmd/fairlead")
	run(t, "go", "test", "-overlay", overlay, "-count=1", "-vet=off", "-run", "AreTheModels$",
		"./internal/paths", "./internal/health")
	trials := []string{"./internal/kernel", "./internal/balance", "./internal/lab/rig", "./internal/explain/doctor"}
	said := run(t, "go", append([]string{"test", "-overlay", overlay, "-count=1", "-vet=off", "-ldflags=-s -w", "-v",
		"-run", "^TestTrial$"}, trials...)...)
	if strings.Count(said, "--- PASS: TestTrial") != len(trials) {
		t.Errorf("the tests of the packages %q did not all run:\n%s", trials, said)
	}
	testTrialNames(t, command)
	testTrialGateway(t, command)
}

// addGenerated adds the files below the directory.
func addGenerated(t *testing.T, files map[string]string, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files[strings.TrimPrefix(path, dir+"/")] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// testTrialNames checks that the command's tables and help have the names.
func testTrialNames(t *testing.T, command string) {
	t.Helper()
	var table []paths.Path
	if err := json.Unmarshal([]byte(run(t, command, "paths", "--output", "json")), &table); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(table, func(p paths.Path) bool { return p.Driver == "trial" && p.Via == "trial" }) {
		t.Error("the table has no path with driver and publish mode trial")
	}
	var attacks []threat.Cell
	if err := json.Unmarshal([]byte(run(t, command, "paths", "--attacks", "--output", "json")), &attacks); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(attacks, func(c threat.Cell) bool {
		return c.Driver == "trial" && c.Via == "trial" && c.Can
	}) {
		t.Error("the table of threats has no attack that succeeds with driver and publish mode trial")
	}
	for help, want := range map[string][]string{
		"network create": {"ipvlan, vxlan, device, trial"},
		"publish":        {"auto, ebpf, trial, nat"},
		"service add": {"ebpf, nft, ipvs, trial", "sed, nq, trial", "exec, docker, trial, none",
			"tcp, udp, trial: regular"},
	} {
		text := run(t, command, append(strings.Fields(help), "--help")...)
		for _, words := range want {
			if !strings.Contains(text, words) {
				t.Errorf("the help of %s lacks %q:\n%s", help, words, text)
			}
		}
	}
	if slices.Contains(model.CheckTypes(), "trial") || slices.Contains(model.Planes(), "trial") {
		t.Error("the tree itself has something with the name trial: rename the trials")
	}
}

// run runs a command in the tree and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = "../.."
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0") // as make build does: the gateway does not run with cgo
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
