package arch_test

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/paths"
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
	{"driver", []string{"internal/driver/NAME"},
		map[string]string{"internal/driver/trial/driver.go": "testdata/driver.go"}, []insertion{
			{"internal/model/driver.go", `	DriverDevice `, `	DriverTrial Driver = "trial"`},
			{"internal/model/driver.go", `	{DriverDevice, `, `	{DriverTrial, Traits{}},`},
			{"internal/paths/paths.go", `	"fairlead/internal/driver/routed"`,
				`	trialdriver "fairlead/internal/driver/trial"`},
			{"internal/paths/paths.go", `		device.Driver{},`, `		trialdriver.Driver{},`},
		}, 2},
	{"publish mode", []string{"internal/publish/NAME"},
		map[string]string{"internal/publish/trial/mode.go": "testdata/mode.go"}, []insertion{
			{"internal/model/model.go", `	ViaProxy `, `	ViaTrial Via = "trial"`},
			{"internal/paths/paths.go", `	"fairlead/internal/publish/socket"`,
				`	trialmode "fairlead/internal/publish/trial"`},
			{"internal/paths/paths.go", `		nat.Mode{},`, `		trialmode.Mode{},`},
		}, 3},
	{"data plane", []string{"internal/balance/NAME"},
		map[string]string{"internal/balance/trial/plane.go": "testdata/plane.go"}, []insertion{
			{"internal/model/plane.go", `	PlaneIPVS `, `	PlaneTrial Plane = "trial"`},
			{"internal/model/plane.go", `	{PlaneIPVS, `, `	{PlaneTrial, PlaneTraits{NeedsLocalAddress: true}},`},
			{"internal/paths/planes.go", `	"fairlead/internal/balance/nft"`, `	"fairlead/internal/balance/trial"`},
			{"internal/paths/planes.go", `		ipvs.Plane{},`, `		trial.Plane{},`},
		}, 4},
	{"scheduler", nil, map[string]string{"internal/balance/trial_test.go": "testdata/scheduler_test.txt"}, []insertion{
		{"internal/model/scheduler.go", `	NeverQueue `, `	SchedulerTrial Scheduler = "trial"`},
		{"internal/model/scheduler.go", `	{NeverQueue, `, `	{SchedulerTrial, SchedulerTraits{Hashes: FullKey}},`},
	}, 1},
	{"check of real servers", []string{"internal/health/NAME.go"},
		map[string]string{"internal/health/trial.go": "testdata/check.go"}, []insertion{
			{"internal/model/check.go", `	CheckDocker `, `	CheckTrial CheckType = "trial"`},
			{"internal/model/check.go", `		CheckDocker,`, `		CheckTrial,`},
			{"internal/health/types.go", `	dockerType,`, `	trialType,`},
		}, 2},
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

// TestNewcomers adds a driver, a publish mode, a data plane, a scheduler, a check and an object to a
// copy of the tree, all with the name trial. The copy builds, its own tests find the
// lists complete, its command knows the names, and its kernel carries out the object.
func TestNewcomers(t *testing.T) {
	t.Parallel()
	files, insertions := map[string]string{}, []insertion{}
	for _, n := range newcomers {
		maps.Copy(files, n.files)
		insertions = append(insertions, n.insert...)
	}
	overlay, command := overlayOf(t, files, insertions), filepath.Join(t.TempDir(), "fairlead")
	run(t, "go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", command, "./cmd/fairlead")
	run(t, "go", "test", "-overlay", overlay, "-count=1", "-vet=off", "-run", "AreTheModels$",
		"./internal/paths", "./internal/health")
	said := run(t, "go", "test", "-overlay", overlay, "-count=1", "-vet=off", "-ldflags=-s -w", "-v",
		"-run", "^TestTrial$", "./internal/kernel", "./internal/balance")
	if strings.Count(said, "--- PASS: TestTrial") != 2 {
		t.Errorf("the tests of the object and of the scheduler did not run:\n%s", said)
	}

	var table []paths.Path
	if err := json.Unmarshal([]byte(run(t, command, "paths", "--output", "json")), &table); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(table, func(p paths.Path) bool { return p.Driver == "trial" && p.Via == "trial" }) {
		t.Error("the table has no path with driver and publish mode trial")
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
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
