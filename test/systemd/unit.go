// Package systemd reads the packaged units, so that the test can run the daemon
// with their settings. It runs nothing itself.
package systemd

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Unit contains the settings of a unit file by name. Repeated settings are joined
// with spaces, as for lists (systemd.syntax(7)).
type Unit map[string]string

// Read reads a unit file.
func Read(path string) (Unit, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read unit: %w", err)
	}
	u := Unit{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if ok && !strings.HasPrefix(line, "#") {
			u[name] = strings.TrimSpace(u[name] + " " + value)
		}
	}
	return u, nil
}

// BoundingSet returns the unit's capabilities in the syntax of setpriv(1).
func (u Unit) BoundingSet() string {
	set := "-all"
	for name := range strings.FieldsSeq(u["CapabilityBoundingSet"]) {
		set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	return set
}

// SystemCalls returns the names of the system calls that SystemCallFilter allows. groups is the
// output of `systemd-analyze syscall-filter`. A setting that removes calls (~) is an error, because
// the units have none.
func (u Unit) SystemCalls(groups string) ([]string, error) {
	members := map[string][]string{}
	group := ""
	for line := range strings.Lines(groups) {
		name := strings.TrimSpace(line)
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case strings.HasPrefix(line, "@"):
			group = name
		default:
			members[group] = append(members[group], name)
		}
	}
	calls := map[string]bool{}
	todo := append(strings.Fields(u["SystemCallFilter"]), "@default") // systemd.exec(5): always allowed
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if strings.HasPrefix(name, "~") {
			return nil, fmt.Errorf("read SystemCallFilter: %s removes system calls", name)
		}
		if !strings.HasPrefix(name, "@") {
			calls[name] = true
			continue
		}
		if members[name] == nil {
			return nil, fmt.Errorf("read SystemCallFilter: systemd has no group %s", name)
		}
		todo = append(todo, members[name]...)
	}
	return slices.Sorted(maps.Keys(calls)), nil
}
