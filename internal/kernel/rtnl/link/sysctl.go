package link

import (
	"errors"
	"os"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
)

// WriteSysctl writes s.Value unless the sysctl already has that value or s.Unless. It
// returns the same errors as ReadSysctl for a missing sysctl or namespace.
func (h *Handle) WriteSysctl(s plan.Sysctl) error {
	err := h.InSysctlNetns(s, func(path string) error { return writeSysctl(path, s) })
	if s.Unless != "" && errors.Is(err, rtnl.ErrNoSetting) {
		return nil
	}
	return err
}

// writeSysctl writes a setting of the caller's namespace unless it already has the
// value.
func writeSysctl(path string, s plan.Sysctl) error {
	now, err := os.ReadFile(path)
	if err != nil || s.Allows(strings.TrimSpace(string(now))) {
		return err
	}
	return os.WriteFile(path, []byte(s.Value), 0)
}
