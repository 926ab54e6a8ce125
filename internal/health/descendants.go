package health

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"fairlead/internal/cgroup"
	"fairlead/internal/child"
)

// descendants are a command and all processes that it started, in any session or
// process group. They are in one cgroup. Without cgroup v2, or before Linux 5.14,
// an environment variable with a random value marks them instead; a process that
// clears its environment then escapes.
type descendants struct {
	group *cgroup.Group
	mark  string
}

// The host's processes are searched until none is marked, but at most passes times,
// because the kernel may not be able to kill a process.
const (
	passes = 100
	pause  = 10 * time.Millisecond
)

// checkGroups is the prefix of the cgroups of checks.
const checkGroups = "fairlead-check-"

func newCheckGroup() (*cgroup.Group, error) { return cgroup.New(checkGroups) }

// descendants prepares for one run of the command.
func (e execCheck) descendants() descendants {
	if group, err := e.group(); err == nil {
		return descendants{group: group}
	}
	return descendants{mark: "FAIRLEAD_CHECK=" + rand.Text()}
}

// place prepares the command and returns where to run it.
func (d descendants) place(cmd *exec.Cmd) child.Place {
	if d.group != nil {
		return child.Place{Cgroup: d.group.Dir}
	}
	cmd.Env = append(cmd.Env, d.mark)
	return child.Place{}
}

func (d descendants) kill() {
	if d.group != nil {
		_ = d.group.Kill()
		return
	}
	for range passes {
		if !d.killMarked() {
			return
		}
		time.Sleep(pause)
	}
}

// end kills all descendants and removes the cgroup.
func (d descendants) end() {
	d.kill()
	if d.group != nil {
		_ = d.group.Close() // if it cannot be removed now, the next check removes it
	}
}

// killMarked kills the marked processes and reports whether there were any: in the
// meantime they may have started others. A killed process has no environment.
func (d descendants) killMarked() bool {
	found := false
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		// FindProcess opens a pidfd, so the killed process is the one whose environment
		// is read.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		environ, _ := os.ReadFile(path)
		if bytes.Contains(environ, []byte(d.mark)) {
			found = process.Kill() == nil || found
		}
		_ = process.Release()
	}
	return found
}
