package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/sandbox"
)

// Notes about containers. When an engine starts, it starts its containers before it
// answers requests. So their labels must be known from before: the notes survive a
// reboot. A container's labels and network mode never change.

// labelledKey begins the keys of the notes about labelled containers on the host's
// network.
const labelledKey = "docker labelled "

// labelledNote is the note about a container.
type labelledNote struct {
	sandbox.Labelled
	// Parent is the cgroup that had the container's, below the root of the hierarchy;
	// empty if it is not known yet.
	Parent string `json:",omitempty"`
}

// notes returns the notes by their keys. The caller must have locked noting.
func (l *Labels) notes() map[string]labelledNote {
	all := map[string]labelledNote{}
	for key, raw := range l.Notes.All() {
		id, is := strings.CutPrefix(key, labelledKey)
		if !is {
			continue
		}
		var n labelledNote
		if err := json.Unmarshal(raw, &n); err != nil || n.ID != id {
			l.warn("read the note about a container", errors.Join(err, errors.New(key)))
			continue
		}
		all[key] = n
	}
	return all
}

// recall learns the noted containers, and handles those of their cgroups that exist.
func (l *Labels) recall() {
	l.noting.Lock()
	noted := l.notes()
	l.noting.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range noted {
		l.warn("watch for containers' cgroups", l.await(n.Parent))
	}
	for _, n := range noted {
		l.meet(n.Labelled, func(path string) bool { return !l.admitted(path) })
	}
}

// await watches the parent of a container's cgroup before the engine creates it: a
// runtime creates both at once after a reboot, and starts the process before a watch
// that begins only then. A slice is left to systemd, which creates it early. The caller
// must have locked mu.
func (l *Labels) await(parent string) error {
	if parent == "" || !filepath.IsLocal(parent) {
		return nil
	}
	path := filepath.Join(l.Root, parent)
	if !strings.HasSuffix(parent, ".slice") {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("create the parent of containers' cgroups: %w", err)
		}
	}
	return l.where.watch(path)
}

// admitted reports whether the daemon has published the ports of the workload in a
// cgroup. The runtime has started such a container: if it is frozen, a user has paused it.
func (l *Labels) admitted(path string) bool {
	return slices.ContainsFunc(l.Workloads.Attachments(), func(a api.View) bool {
		return a.Network == api.HostNetwork && a.Cgroup == path
	})
}

// note stores the containers that need a note. If all is true, these are all containers
// of the engine: other notes are removed.
func (l *Labels) note(containers []sandbox.Labelled, all bool) {
	l.noting.Lock()
	defer l.noting.Unlock()
	noted := l.notes()
	changes := map[string]any{}
	for key := range noted {
		if all {
			changes[key] = nil
		}
	}
	for _, c := range containers {
		key := labelledKey + c.ID
		c.Running, c.Starting = false, false
		n, known := noted[key]
		switch {
		case !c.HostNetwork:
		case known && reflect.DeepEqual(n.Labelled, c):
			delete(changes, key)
		default:
			changes[key] = labelledNote{c, n.Parent}
		}
	}
	l.put(changes)
}

// noteParent stores where a container's cgroup is.
func (l *Labels) noteParent(id, cgroup string) {
	l.noting.Lock()
	defer l.noting.Unlock()
	key := labelledKey + id
	n, known := l.notes()[key]
	parent, err := filepath.Rel(l.Root, filepath.Dir(cgroup))
	if known && err == nil && n.Parent != parent {
		n.Parent = parent
		l.put(map[string]any{key: n})
	}
}

// forget removes the note about a container.
func (l *Labels) forget(id string) {
	l.noting.Lock()
	defer l.noting.Unlock()
	if _, noted := l.notes()[labelledKey+id]; noted {
		l.put(map[string]any{labelledKey + id: nil})
	}
}

func (l *Labels) put(changes map[string]any) {
	if len(changes) > 0 {
		l.warn("note containers", l.Notes.Put(changes))
	}
}
