// Package program finds external programs, and starts and observes them as the
// laboratory needs it.
package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead/internal/escape"
)

// Find returns the path of a program. It first searches the given directories, and
// after PATH the system directories that an ordinary user's PATH lacks and those
// where distributions install docker-proxy and CNI plugins. It returns
// exec.ErrNotFound if the program is not installed.
func Find(tool string, first ...string) (string, error) {
	for _, dir := range first {
		if path, err := exec.LookPath(filepath.Join(dir, tool)); dir != "" && err == nil {
			return path, nil
		}
	}
	dirs := []string{"", "/usr/sbin/", "/sbin/", "/usr/libexec/docker/", "/usr/local/bin/"}
	if plugin, ok := strings.CutPrefix(tool, "cni/"); ok {
		tool, dirs = plugin, []string{"/usr/lib/cni/", "/usr/libexec/cni/", "/opt/cni/bin/"}
	}
	for _, dir := range dirs {
		if path, err := exec.LookPath(dir + tool); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// FindGateway returns the path of a gateway's program: this process's own for "fairlead".
func FindGateway(name string) (string, error) {
	if name == "fairlead" {
		return fmt.Sprintf("/proc/%d/exe", os.Getpid()), nil
	}
	return Find(name)
}

// InMemory returns a file in memory with the given content.
func InMemory(content string) (*os.File, error) {
	fd, err := unix.MemfdCreate("config", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "config")
	if _, err := f.WriteString(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Shell runs a script in the namespace that do enters, up to its first failure. It
// returns what the script has printed.
func Shell(do func(func() error) error, script string) (out string, err error) {
	err = do(func() error {
		b, err := exec.Command("sh", "-ec", script).CombinedOutput()
		if out = string(b); err != nil {
			return fmt.Errorf("%w: %s", err, escape.OneLine(out))
		}
		return nil
	})
	return out, err
}

// ForOthers returns the path of a sandbox for other processes, which find this
// process's descriptors under its pid.
func ForOthers(sandbox string) string {
	return strings.Replace(sandbox, "/proc/self/", fmt.Sprintf("/proc/%d/", os.Getpid()), 1)
}
