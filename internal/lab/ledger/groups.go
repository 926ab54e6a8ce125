package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fairlead/internal/cgroup"

	"golang.org/x/sys/unix"
)

// prefix marks the laboratory's cgroups. The owner's process id and start time
// follow, then its PID namespace, then the name.
const prefix = "fairlead-lab-"

// Groups are the cgroups of one laboratory, one per party.
type Groups struct {
	// Client, Server and Proxy are open directories, for child.Place.Cgroup
	// and for Party.Cgroup.
	Client, Server, Proxy *os.File
	path                  string
}

// Path returns the directory of the three cgroups.
func (g *Groups) Path() string { return g.path }

// NewGroups creates the three cgroups under a name that is unique in this process:
// fairlead-lab-PID-START-NAMESPACE-NAME/{client,server,proxy}. Returns
// cgroup.ErrNone if there is no cgroup v2; then use Party.PIDs.
func NewGroups(name string) (*Groups, error) {
	if name == "" || strings.ContainsAny(name, "/\n") {
		return nil, fmt.Errorf("make cgroups: invalid name %q", name)
	}
	root, err := cgroup.Root()
	if err != nil {
		return nil, fmt.Errorf("make cgroups: %w", err)
	}
	self, err := readTask(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("make cgroups: %w", err)
	}
	pids, err := pidNamespace()
	if err != nil {
		return nil, fmt.Errorf("make cgroups: %w", err)
	}
	g := &Groups{path: filepath.Join(root, groupName(os.Getpid(), self.start, pids, name))}
	if err := g.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("make cgroups: %w", err), g.Close())
	}
	return g, nil
}

func groupName(pid int, start, pids uint64, name string) string {
	return fmt.Sprintf("%s%d-%d-%d-%s", prefix, pid, start, pids, name)
}

// pidNamespace returns the number of this process's PID namespace. A laboratory of
// another namespace may be running although its process id does not exist in this
// one.
func pidNamespace() (uint64, error) {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &ns); err != nil {
		return 0, fmt.Errorf("find the PID namespace: %w", err)
	}
	return ns.Ino, nil
}

func (g *Groups) make() error {
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return err
	}
	for _, v := range []struct {
		name string
		to   **os.File
	}{{"client", &g.Client}, {"server", &g.Server}, {"proxy", &g.Proxy}} {
		path := filepath.Join(g.path, v.name)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		dir, err := os.Open(path)
		if err != nil {
			return err
		}
		*v.to = dir
	}
	return nil
}

// Parties returns the parties for these cgroups.
func (g *Groups) Parties() Parties {
	return Parties{Client: Party{Cgroup: g.Client}, Server: Party{Cgroup: g.Server}, Proxy: Party{Cgroup: g.Proxy}}
}

// Close removes the cgroups. Processes that are still in them are killed.
func (g *Groups) Close() error {
	for _, dir := range []*os.File{g.Client, g.Server, g.Proxy} {
		if dir != nil {
			dir.Close()
		}
	}
	return removeTree(g.path)
}

// Sweep removes the cgroups of laboratories that have ended, with the processes in
// them, and returns their names.
func Sweep() ([]string, error) {
	root, err := cgroup.Root()
	if errors.Is(err, cgroup.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sweep cgroups: %w", err)
	}
	pids, err := pidNamespace()
	if err != nil {
		return nil, fmt.Errorf("sweep cgroups: %w", err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("sweep cgroups: %w", err)
	}
	var removed []string
	failed := sweepV1(pids)
	for _, e := range entries {
		if !abandoned(e.Name(), pids) {
			continue
		}
		if err := removeTree(filepath.Join(root, e.Name())); err != nil {
			failed = errors.Join(failed, fmt.Errorf("sweep cgroups: %w", err))
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, failed
}

// Left reports whether there are cgroups of a process, which has this process id in
// this PID namespace and may have ended.
func Left(pid int) (bool, error) {
	root, err := cgroup.Root()
	if errors.Is(err, cgroup.ErrNone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	all, err := filepath.Glob(filepath.Join(root, fmt.Sprintf("%s%d-*", prefix, pid)))
	return len(all) > 0, err
}

// abandoned reports whether a cgroup belongs to a laboratory of the same PID
// namespace whose owner has ended: its process id is free, or belongs to a process
// with another start time.
func abandoned(name string, pids uint64) bool {
	rest, ours := strings.CutPrefix(name, prefix)
	parts := strings.SplitN(rest, "-", 4)
	if !ours || len(parts) != 4 || parts[2] != strconv.FormatUint(pids, 10) {
		return false
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	start, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return false
	}
	owner, err := readTask(pid)
	return err != nil || owner.start != start || owner.zombie
}
