// Package kerneltest has what tests share that use the kernel: network namespaces,
// commands in them, and cgroups.
package kerneltest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/netns"
)

// Netns creates a network namespace that ends with the test.
func Netns(t testing.TB) *netns.Namespace {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// Run runs a command in the namespace and returns its output.
func Run(t testing.TB, ns *netns.Namespace, name string, args ...string) string {
	t.Helper()
	var out []byte
	err := ns.Do(func() (err error) {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// CgroupRoot returns the root of the cgroup v2 hierarchy.
func CgroupRoot(t testing.TB) string {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// emptyLimit is how long threads of the test process have to leave a cgroup.
const emptyLimit = 30 * time.Second

// Cgroup creates a cgroup that is removed when the test ends.
func Cgroup(t testing.TB, parent string) string {
	t.Helper()
	path, err := os.MkdirTemp(parent, "fairlead-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A thread of the test process that was ending when the process left still belongs to the cgroup.
		err := cgroup.WaitEmpty(path, emptyLimit)
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	return path
}

// InCgroup runs fn while the test process is in the cgroup.
func InCgroup(t testing.TB, path string, fn func()) {
	t.Helper()
	lines, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, home, _ := strings.Cut("\n"+string(lines), "\n0::")
	home, _, _ = strings.Cut(home, "\n")
	enter(t, path)
	defer enter(t, filepath.Join(CgroupRoot(t), home))
	fn()
}

func enter(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
}
