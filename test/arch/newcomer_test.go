package arch_test

import (
	"encoding/json"
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
	// create is the path in the row's second cell, and file the file that the trial
	// creates there from the text in testdata.
	create, file, text string
	// insert are the lines for existing files, and most is how many of these files
	// the page may list.
	insert []insertion
	most   int
}

var newcomers = []newcomer{
	{"driver", "internal/driver/NAME", "internal/driver/trial/driver.go", "testdata/driver.go", []insertion{
		{"internal/model/driver.go", `	DriverDevice `, `	DriverTrial Driver = "trial"`},
		{"internal/model/driver.go", `	{DriverDevice, `, `	{DriverTrial, Traits{}},`},
		{"internal/paths/paths.go", `	"fairlead/internal/driver/routed"`,
			`	trialdriver "fairlead/internal/driver/trial"`},
		{"internal/paths/paths.go", `		device.Driver{},`, `		trialdriver.Driver{},`},
	}, 2},
	{"publish mode", "internal/publish/NAME", "internal/publish/trial/mode.go", "testdata/mode.go", []insertion{
		{"internal/model/model.go", `	ViaProxy `, `	ViaTrial Via = "trial"`},
		{"internal/paths/paths.go", `	"fairlead/internal/publish/socket"`,
			`	trialmode "fairlead/internal/publish/trial"`},
		{"internal/paths/paths.go", `		nat.Mode{},`, `		trialmode.Mode{},`},
	}, 3},
	{"data plane", "internal/balance/NAME", "internal/balance/trial/plane.go", "testdata/plane.go", []insertion{
		{"internal/model/plane.go", `	PlaneIPVS `, `	PlaneTrial Plane = "trial"`},
		{"internal/model/plane.go", `	{PlaneIPVS, `, `	{PlaneTrial, PlaneTraits{NeedsLocalAddress: true}},`},
		{"internal/paths/planes.go", `	"fairlead/internal/balance/nft"`, `	"fairlead/internal/balance/trial"`},
		{"internal/paths/planes.go", `		ipvs.Plane{},`, `		trial.Plane{},`},
	}, 4},
	{"check of real servers", "internal/health/NAME.go", "internal/health/trial.go", "testdata/check.go", []insertion{
		{"internal/model/check.go", `	CheckDocker `, `	CheckTrial CheckType = "trial"`},
		{"internal/model/check.go", `		CheckDocker,`, `		CheckTrial,`},
		{"internal/health/types.go", `	dockerType,`, `	trialType,`},
	}, 2},
}

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
		if !slices.Equal(created, []string{n.create}) {
			t.Errorf("%s: the page lists %q to create, want %s", n.kind, created, n.create)
		}
	}
}

// TestNewcomers adds a driver, a publish mode, a data plane and a check to a copy of
// the tree, all with the name trial. The copy builds, its own tests find the lists
// complete, and its command knows the names.
func TestNewcomers(t *testing.T) {
	t.Parallel()
	files, insertions := map[string]string{}, []insertion{}
	for _, n := range newcomers {
		files[n.file] = n.text
		insertions = append(insertions, n.insert...)
	}
	overlay, command := overlayOf(t, files, insertions), filepath.Join(t.TempDir(), "fairlead")
	run(t, "go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", command, "./cmd/fairlead")
	run(t, "go", "test", "-overlay", overlay, "-count=1", "-vet=off", "-run", "AreTheModels$",
		"./internal/paths", "./internal/health")

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
		"service add":    {"ebpf, nft, ipvs, trial", "exec, docker, trial, none", "tcp, udp, trial: regular"},
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
