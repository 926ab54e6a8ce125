package link

import (
	"os"
	"strings"

	"fairlead/internal/plan"
)

// WriteSysctl writes s.Value unless the sysctl already has that value. It returns
// the same errors as ReadSysctl for a missing sysctl or namespace.
func (h *Handle) WriteSysctl(s plan.Sysctl) error {
	return h.InSysctlNetns(s, func(path string) error { return writeSysctl(path, s.Value) })
}

// writeSysctl writes a setting of the caller's namespace unless it already has the
// value.
func writeSysctl(path, value string) error {
	now, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(now)) == value {
		return err
	}
	return os.WriteFile(path, []byte(value), 0)
}
