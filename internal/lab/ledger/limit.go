package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairlead/internal/cgroup"

	"golang.org/x/sys/unix"
)

// cpuV1 is where cgroup v1 has its controller of CPU time, on hosts that also have
// cgroup v2 without it.
const cpuV1 = "/sys/fs/cgroup/cpu"

// quotaV1 is the file of the quota in cgroup v1.
const quotaV1 = "cpu.cfs_quota_us"

// ErrNoQuota means that the host has no controller of CPU time that can be used.
var ErrNoQuota = errors.New("the CPU controller is in neither cgroup v2 nor " + cpuV1 + ": the CPU time of a node " +
	"cannot be limited")

// Limited is a cgroup below that of the proxies, whose CPU time can be limited.
type Limited struct {
	// Dir is the open cgroup v2 directory, for child.Place.Cgroup and Party.Cgroup.
	Dir *os.File
	// v1 is the directory of the same processes in cgroup v1, empty if v2 limits them.
	v1 string
}

// Limited creates a cgroup of that name. Returns ErrNoQuota if the host cannot limit
// CPU time. After an error the cgroup does not exist.
func (g *Groups) Limited(name string) (*Limited, error) {
	path := filepath.Join(g.Proxy.Name(), name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	l := &Limited{}
	err := l.open(path)
	if err == nil && !enableCPU(filepath.Dir(g.path), g.path, g.Proxy.Name()) {
		err = l.join(filepath.Join(cpuV1, filepath.Base(g.path)+"-"+name))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make cgroup: %w", err), l.Close(), removeTree(path))
	}
	return l, nil
}

// open opens the cgroup v2 directory.
func (l *Limited) open(path string) (err error) {
	l.Dir, err = os.Open(path)
	return err
}

// join creates the directory in cgroup v1, with which the host limits CPU time if
// cgroup v2 has no CPU controller.
func (l *Limited) join(path string) error {
	err := os.Mkdir(path, 0o755)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), errors.Is(err, unix.EROFS):
		return ErrNoQuota
	case err != nil:
		return err
	}
	l.v1 = path
	if _, err := os.Stat(filepath.Join(path, quotaV1)); err != nil {
		return ErrNoQuota
	}
	return nil
}

// enableCPU enables the CPU controller in the children of cgroups, from the root on.
// It reports whether that worked.
func enableCPU(paths ...string) bool {
	for _, path := range paths {
		controllers, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
		if err != nil || !contains(string(controllers), "cpu") {
			return false
		}
		enabled, err := os.ReadFile(filepath.Join(path, "cgroup.subtree_control"))
		if err == nil && contains(string(enabled), "cpu") {
			continue
		}
		if os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+cpu"), 0) != nil {
			return false
		}
	}
	return true
}

func contains(words, word string) bool { return slices.Contains(strings.Fields(words), word) }

// Join is the file to which a process writes 0 to have the limit; empty if the cgroup
// v2 directory is enough.
func (l *Limited) Join() string {
	if l.v1 == "" {
		return ""
	}
	return filepath.Join(l.v1, "cgroup.procs")
}

// Limit limits the CPU time of the cgroup to the quota in each period, 0 to no limit.
// The kernel accepts quotas from 1 ms on.
func (l *Limited) Limit(quota, period time.Duration) error {
	text := fmt.Sprint(quota.Microseconds())
	var err error
	switch {
	case l.v1 == "" && quota == 0:
		err = l.write(l.Dir.Name(), "cpu.max", fmt.Sprint("max ", period.Microseconds()))
	case l.v1 == "":
		err = l.write(l.Dir.Name(), "cpu.max", fmt.Sprintf("%s %d", text, period.Microseconds()))
	case quota == 0:
		err = l.write(l.v1, quotaV1, "-1")
	default:
		if err = l.write(l.v1, "cpu.cfs_period_us", fmt.Sprint(period.Microseconds())); err == nil {
			err = l.write(l.v1, quotaV1, text)
		}
	}
	if err != nil {
		return fmt.Errorf("limit CPU time to %s in %s: %w", quota, period, err)
	}
	return nil
}

func (*Limited) write(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0)
}

// Used returns the CPU time that the processes have used so far, and for how long the
// limit has stopped them, in seconds.
func (l *Limited) Used() (cpu, throttled float64, err error) {
	keys, err := readCPUStat(l.Dir)
	if err != nil {
		return 0, 0, err
	}
	cpu, throttled = float64(keys["usage_usec"])/1e6, throttledIn(keys)
	if l.v1 == "" {
		return cpu, throttled, nil
	}
	text, err := os.ReadFile(filepath.Join(l.v1, "cpu.stat"))
	if err == nil {
		keys, err = parseKeys(string(text))
	}
	return cpu, throttledIn(keys), err
}

// Close kills the processes and removes the cgroup.
func (l *Limited) Close() error {
	var errs []error
	if l.Dir != nil {
		errs = append(errs, removeTree(l.Dir.Name()), l.Dir.Close())
	}
	if l.v1 != "" {
		errs = append(errs, os.Remove(l.v1))
	}
	return errors.Join(errs...)
}

// sweepV1 removes the cgroups of ended laboratories in cgroup v1. Their processes
// have ended with those in cgroup v2.
func sweepV1(pids uint64) error {
	if root, err := cgroup.Root(); err != nil || root == filepath.Dir(cpuV1) {
		return nil
	}
	entries, err := os.ReadDir(cpuV1)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var failed error
	for _, e := range entries {
		if !e.IsDir() || !abandoned(e.Name(), pids) {
			continue
		}
		if err := os.Remove(filepath.Join(cpuV1, e.Name())); err != nil && !gone(filepath.Join(cpuV1, e.Name())) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(err, failed)
}
