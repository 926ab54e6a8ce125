// Package external knows the attachments whose sandboxes other programs start and end: the
// external endpoints of container engines, and workloads that are known by their cgroups.
package external

import (
	"errors"
	"os"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Scan finds processes by their namespaces. It reads /proc at most once.
type Scan struct {
	done bool
	err  error
	all  map[sandbox.Inode]int
}

// Process returns a process in the namespace, or 0 if there is none, and whether the
// result is certain.
func (s *Scan) Process(of sandbox.Inode) (pid int, certain bool) {
	if !s.done {
		s.all, s.err = sandbox.Occupants()
		s.done = true
	}
	return s.all[of], s.err == nil
}

// Is reports whether an attachment is of an engine that creates a new one each
// time it starts a container.
func Is(a model.Attachment) bool {
	return a.Origin == model.FromDocker && a.Network != api.HostNetwork && a.Cgroup == ""
}

// HasEnded reports whether the sandbox of a stored attachment does not exist or,
// for an external endpoint, has no process. It knows only the
// stored state and does not wait for a sandbox that is starting.
func HasEnded(a model.Attachment, scan *Scan) bool {
	path := a.Sandbox
	if Is(a) {
		path = SandboxPath(a)
	}
	if a.Cgroup != "" || path == "" {
		return CgroupGone(a)
	}
	at, err := sandbox.NamespaceAt(path)
	if err != nil {
		return !errors.Is(err, os.ErrPermission)
	}
	if now, err := netns.Identify(path); a.Namespace != "" && (err != nil || now != a.Namespace) {
		return true
	}
	if !Is(a) {
		return false // it may have no processes
	}
	pid, certain := scan.Process(at)
	return pid == 0 && (a.Namespace != "" || certain && a.Engine != "") // one was seen, or could be
}

// SandboxPath is the path at which the sandbox of an external endpoint is or will be.
// It is empty if the endpoint was only reserved.
func SandboxPath(a model.Attachment) string {
	if a.Sandbox != "" || !a.Keep {
		return a.Sandbox
	}
	return strings.TrimPrefix(a.Ref, "path:")
}
