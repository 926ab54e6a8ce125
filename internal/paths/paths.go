// Package paths lists all drivers, publish modes and data planes. It makes the
// table of what each path promises and what this kernel supports, and chooses the
// cheapest publish mode or data plane that fits. It does not change the kernel.
package paths

import (
	"fmt"
	"slices"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/internal/publish"
	"fairlead/internal/publish/ebpf"
	"fairlead/internal/publish/nat"
	"fairlead/internal/publish/proxy"
	"fairlead/internal/publish/socket"
)

// Modes returns every publish mode in the order of their cost, the most expensive
// first. The laboratory measured the order. It is fixed, so that a choice does not
// depend on the load of a host.
func Modes() []publish.Mode {
	return []publish.Mode{
		proxy.Mode{},
		nat.Mode{},
		ebpf.Mode{},
		socket.Mode{},
	}
}

// SandboxModes returns the names of the publish modes for sandboxes, in the order of
// the modes.
func SandboxModes(modes []publish.Mode) []model.Via {
	var names []model.Via
	for _, m := range modes {
		if m.Carrier() != model.CarrierHooks {
			names = append(names, m.Name())
		}
	}
	return names
}

// Driver returns the driver of that name.
func Driver(name model.Driver) (driver.Driver, bool) {
	for _, d := range Drivers() {
		if d.Name() == name {
			return d, true
		}
	}
	return nil, false
}

// Mode returns the publish mode of that name.
func Mode(name model.Via) (publish.Mode, bool) {
	for _, w := range Modes() {
		if w.Name() == name {
			return w, true
		}
	}
	return nil, false
}

// Path is a driver, alone or with a publish mode, and its promises.
type Path struct {
	Driver model.Driver `json:"driver"`
	// Via is empty for the driver alone.
	Via model.Via `json:"via,omitempty"`
	// Unavailable is the reason why this kernel does not support the path. It is
	// empty if the kernel does.
	Unavailable string `json:"unavailable,omitempty"`
	// Needs lists the kernel features without which the path cannot work.
	Needs []plan.Feature `json:"needs,omitempty"`
	// Kernel is the first Linux release that has them, e.g. 5.6. It is empty if
	// every supported release has them.
	Kernel   string      `json:"kernel,omitempty"`
	Promises promise.Set `json:"promises"`
}

// path returns one row of the table.
func path(d model.Driver, via model.Via, f plan.Facts, needs []plan.Feature, p promise.Set) Path {
	return Path{Driver: d, Via: via, Unavailable: Missing(f, needs), Needs: needs, Kernel: since(needs), Promises: p}
}

// since returns the first release that has all the features.
func since(needs []plan.Feature) string {
	var major, minor int
	for _, n := range needs {
		if a, b := n.Since(); a > major || a == major && b > minor {
			major, minor = a, b
		}
	}
	if major == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", major, minor)
}

// Table returns every driver alone, then every publish mode with every driver that
// it supports.
func Table(f plan.Facts) []Path {
	var table []Path
	for _, d := range Drivers() {
		table = append(table, path(d.Name(), "", f, d.Needs(), d.Promises()))
	}
	for _, w := range Modes() {
		for _, d := range Drivers() {
			if promises := w.Promises(d.Name()); promises != nil {
				needs := slices.Compact(append(d.Needs(), w.Needs()...))
				table = append(table, path(d.Name(), w.Name(), f, needs, promises))
			}
		}
	}
	return table
}

// Missing returns the first of the needed features that this kernel lacks, and the
// reason. It returns the empty string if the kernel has all of them.
func Missing(f plan.Facts, needs []plan.Feature) string {
	for _, n := range needs {
		if !f.Has(n) {
			return string(n) + ": " + f.Missing[n]
		}
	}
	return ""
}
