package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/plan"
)

// ErrNoSetting says that this kernel does not have the sysctl.
var ErrNoSetting = errors.New("this kernel has no such setting")
var sysctlKind = kind[plan.Sysctl]{
	set: (*Host).WriteSysctl,
	read: func(h *Host, s plan.Sysctl) (found plan.Object, err error) {
		s.Value, err = h.ReadSysctl(s)
		return s, err
	},
	concerned: func(m *matcher, s plan.Sysctl) bool { return s.Netns == "" && m.settings[s.Name] },
}

// ReadSysctl returns the current value of s.Name in s.Netns. Returns ErrNoSetting
// if the kernel does not have the sysctl or its link does not exist. The error
// wraps os.ErrNotExist if there is no namespace at s.Netns.
func (h *Host) ReadSysctl(s plan.Sysctl) (string, error) {
	var value []byte
	err := h.inSysctlNetns(s, func(path string) (err error) {
		value, err = os.ReadFile(path)
		return err
	})
	return strings.TrimSpace(string(value)), err
}

// WriteSysctl writes s.Value unless the sysctl already has that value. It returns
// the same errors as ReadSysctl for a missing sysctl or namespace.
func (h *Host) WriteSysctl(s plan.Sysctl) error {
	return h.inSysctlNetns(s, func(path string) error { return writeSysctl(path, s.Value) })
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

// sysctlPath returns the file of a setting.
func sysctlPath(name string) string {
	return filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
}

// inSysctlNetns calls do with the setting's file on a thread in the namespace,
// because /proc/sys/net shows the namespace of the thread that opens the file.
func (h *Host) inSysctlNetns(s plan.Sysctl, do func(path string) error) error {
	ns, err := h.ns.Open(s.Netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	err = ns.Do(func() error {
		return do(sysctlPath(s.Name))
	})
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", s.Name, ErrNoSetting)
	}
	return err
}
