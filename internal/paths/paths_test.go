package paths_test

import (
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

func TestTableAnswersEveryQuestion(t *testing.T) {
	var rows []string
	for _, p := range paths.Table(plan.Facts{}) {
		rows = append(rows, strings.TrimSpace(string(p.Via)+" "+string(p.Driver)))
		questions := promise.Driver()
		if p.Via != "" {
			questions = promise.Publish()
		}
		for _, q := range questions {
			if answer, ok := p.Promises[q]; !ok {
				t.Errorf("%s %s does not answer %s", p.Via, p.Driver, q)
			} else if !answer.Kept && answer.How == "" {
				t.Errorf("%s %s does not make the promise %s and gives no reason", p.Via, p.Driver, q)
			}
		}
		if len(p.Promises) != len(questions) {
			t.Errorf("%s %s answers unknown questions: %v", p.Via, p.Driver, p.Promises)
		}
		if p.Unavailable != "" {
			t.Errorf("%s %s is unavailable on a kernel that has every feature: %s", p.Via, p.Driver, p.Unavailable)
		}
	}
	want := []string{"none", "host", "bridge", "routed", "macvlan", "ipvlan", "vxlan", "device",
		"proxy bridge", "proxy routed", "proxy macvlan", "proxy ipvlan", "proxy vxlan",
		"nat bridge", "nat routed", "nat macvlan", "nat ipvlan", "nat vxlan",
		"ebpf bridge", "ebpf routed", "ebpf vxlan", "socket host"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
}

func TestTableNamesMissingFeatures(t *testing.T) {
	facts := plan.Facts{Missing: map[plan.Feature]string{plan.FeatureBridge: "modprobe bridge"}}
	for _, p := range paths.Table(facts) {
		want := ""
		if p.Driver == model.DriverBridge || p.Driver == model.DriverVXLAN {
			want = "bridge: modprobe bridge"
		}
		if p.Unavailable != want {
			t.Errorf("%s %s: %q, want %q", p.Via, p.Driver, p.Unavailable, want)
		}
	}
}

// TestDriversAreTheModels checks that there is a driver for each name that the model
// has traits of.
func TestDriversAreTheModels(t *testing.T) {
	var names []model.Driver
	for _, d := range paths.Drivers() {
		names = append(names, d.Name())
	}
	if want := model.Drivers(func(model.Traits) bool { return true }); !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

// TestPlanesAreTheModels checks that there is a data plane for each name that the model
// has traits of, and that both are in the same order.
func TestPlanesAreTheModels(t *testing.T) {
	var names []model.Plane
	for _, p := range paths.Planes() {
		names = append(names, p.Name())
	}
	if want := model.Planes(); !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

func TestNames(t *testing.T) {
	for _, d := range paths.Drivers() {
		if found, ok := paths.Driver(d.Name()); !ok || found != d {
			t.Errorf("driver %s is not found", d.Name())
		}
	}
	for _, w := range paths.Modes() {
		if found, ok := paths.Mode(w.Name()); !ok || found != w {
			t.Errorf("mode %s is not found", w.Name())
		}
	}
	if _, ok := paths.Driver("token-ring"); ok {
		t.Error("an unknown driver is found")
	}
	if _, ok := paths.Mode("smoke-signals"); ok {
		t.Error("an unknown mode is found")
	}
}
