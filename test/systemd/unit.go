// Package systemd reads the units that are packaged, so that its test can run
// the daemon as they say. It runs nothing itself.
package systemd

import (
	"fmt"
	"os"
	"strings"
)

// Unit holds the settings of a unit file, by their names. Those that are there
// several times are joined by spaces, as for lists (systemd.syntax(7)).
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

// BoundingSet returns the unit's capabilities as setpriv(1) takes them.
func (u Unit) BoundingSet() string {
	set := "-all"
	for name := range strings.FieldsSeq(u["CapabilityBoundingSet"]) {
		set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	return set
}
