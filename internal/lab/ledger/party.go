package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Party is a group of processes whose CPU time is shown separately: all processes
// in a cgroup or, without one, the given processes. The zero Party uses no time.
type Party struct {
	// Cgroup is an open cgroup v2 directory.
	Cgroup *os.File
	// PIDs are processes to count when Cgroup is nil.
	PIDs []int
}

// Parties are the three parties of a run.
type Parties struct {
	Client, Server, Proxy Party
}

// usage returns a party's CPU time so far, in seconds.
func (p Party) usage() (float64, error) {
	if p.Cgroup != nil {
		stat, err := readCPUStat(p.Cgroup)
		if err != nil {
			return 0, err
		}
		return float64(stat["usage_usec"]) / 1e6, nil
	}
	var sum float64
	for _, pid := range p.PIDs {
		cpu, err := ProcessTime(pid)
		if err != nil {
			return 0, err
		}
		sum += cpu
	}
	return sum, nil
}

// members adds the party's processes to a set, including those in child cgroups,
// which cpu.stat includes too.
func (p Party) members(to map[int]bool) error {
	if p.Cgroup == nil {
		for _, pid := range p.PIDs {
			to[pid] = true
		}
		return nil
	}
	return filepath.WalkDir(p.Cgroup.Name(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return ignoreGone(err)
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return ignoreGone(err)
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("parse cgroup.procs: %w", err)
			}
			to[pid] = true
		}
		return nil
	})
}

// ignoreGone returns nil if a cgroup was removed while it was read.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// readCPUStat returns the values of a cgroup's cpu.stat by key.
func readCPUStat(dir *os.File) (map[string]uint64, error) {
	text, err := readIn(dir, "cpu.stat")
	if err != nil {
		return nil, err
	}
	return parseKeys(text)
}

// parseKeys reads lines of a key and a number.
func parseKeys(text string) (map[string]uint64, error) {
	keys := map[string]uint64{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse %q: %w", key, err)
		}
		keys[key] = n
	}
	return keys, nil
}

// readIn reads a file of an open directory, even if the directory was moved.
func readIn(dir *os.File, name string) (string, error) {
	f, err := openIn(dir, name, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return "", fmt.Errorf("read %s of cgroup %s: %w", name, dir.Name(), err)
	}
	return string(b), nil
}
