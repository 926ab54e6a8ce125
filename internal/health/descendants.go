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

// descendants are a command and all that it has started, in whatever sessions and
// process groups. A cgroup holds them. Where there is none
// (no cgroup v2, or before Linux 5.14), a variable with a random value in their
// environment marks them: a process that clears its environment escapes.
type descendants struct {
	group *cgroup.Group
	mark  string
}

// The processes of the host are searched until none is marked. One that the kernel
// does not let die would have them searched for ever.
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

// place prepares the command and returns where it is to run.
func (d descendants) place(cmd *exec.Cmd) child.Place {
	if d.group != nil {
		return child.Place{Cgroup: d.group.Dir}
	}
	cmd.Env = append(cmd.Env, d.mark)
	return child.Place{}
}

// kill kills all of them.
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

// end kills all of them and leaves nothing behind.
func (d descendants) end() {
	d.kill()
	if d.group != nil {
		_ = d.group.Close() // what cannot be removed now, the next check removes
	}
}

// killMarked kills the marked processes and reports whether there were any: they
// may have started others meanwhile. A process that has been killed has no
// environment.
func (d descendants) killMarked() bool {
	found := false
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		// FindProcess opens a pidfd: the process that is killed is the one whose
		// environment is read.
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
