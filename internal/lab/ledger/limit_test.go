package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNothingIsLeftWithoutQuota: on a host that cannot limit CPU time, no cgroup is
// left. A second try then fails for the same reason, and not because the cgroup exists.
func TestNothingIsLeftWithoutQuota(t *testing.T) {
	for name, cgroupV1 := range map[string]func() error{
		"no cgroup v1":            func() error { return nil },
		"cgroup v1 has no quotas": func() error { return os.Mkdir(cpuV1, 0o755) },
		"cgroup v1 is read-only": func() error {
			return errors.Join(os.Mkdir(cpuV1, 0o755), unix.Mount("none", cpuV1, "tmpfs", unix.MS_RDONLY, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error)
			go func() { // its thread, and with it the mounts, end with it
				runtime.LockOSThread()
				err := errors.Join(withoutCPU(), cgroupV1())
				if err == nil {
					err = limitTwice(t)
				}
				ended <- err
			}()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// withoutCPU gives the thread its own mounts, in which cgroup v2 has no CPU controller
// and cgroup v1 does not exist.
func withoutCPU() error {
	const root = "/sys/fs/cgroup"
	return errors.Join(
		unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", root, "tmpfs", 0, ""),
		os.Mkdir(root+"/unified", 0o755),
		unix.Mount("none", root+"/unified", "cgroup2", 0, ""),
		unix.Mount("/dev/null", root+"/unified/cgroup.controllers", "", unix.MS_BIND, ""))
}

// limitTwice tries twice to make a limited cgroup in the same groups.
func limitTwice(t *testing.T) error {
	g, err := NewGroups("unlimited")
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := g.Limited("node1"); !errors.Is(err, ErrNoQuota) {
			t.Errorf("got %v, want %v", err, ErrNoQuota)
		}
		if _, err := os.Stat(filepath.Join(g.Proxy.Name(), "node1")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup is left: %v", err)
		}
	}
	return g.Close()
}
