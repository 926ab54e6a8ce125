package rtnl

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

// ReadSysctl returns the current value of s.Name in s.Netns. Returns ErrNoSetting
// if the kernel does not have the sysctl or its link does not exist. The error
// wraps os.ErrNotExist if there is no namespace at s.Netns.
func (h *Reader) ReadSysctl(s plan.Sysctl) (string, error) {
	var value []byte
	err := h.InSysctlNetns(s, func(path string) (err error) {
		value, err = os.ReadFile(path)
		return err
	})
	return strings.TrimSpace(string(value)), err
}

// SysctlPath returns the file of a setting. A slash in the name is a dot of the file,
// as for sysctl(8).
func SysctlPath(name string) string {
	return filepath.Join("/proc/sys", strings.NewReplacer(".", "/", "/", ".").Replace(name))
}

// InSysctlNetns calls do with the setting's file on a thread in the namespace,
// because /proc/sys/net shows the namespace of the thread that opens the file.
func (h *Reader) InSysctlNetns(s plan.Sysctl, do func(path string) error) error {
	ns, err := h.ns.Open(s.Netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	err = ns.Do(func() error {
		return do(SysctlPath(s.Name))
	})
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", s.Name, ErrNoSetting)
	}
	return err
}
