package docker

import (
	"encoding/json"
	"errors"
	"maps"
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
	// Cgroup was the container's cgroup, below the root of the hierarchy; empty if it is
	// not known yet.
	Cgroup string `json:",omitempty"`
	// Runs is true from the container's start until its end is known. It stays true if
	// the host loses its power.
	Runs bool `json:",omitempty"`
}

// notes returns the notes by their keys. The caller must have locked noting.
func (l *Labels) notes() map[string]labelledNote {
	all := map[string]labelledNote{}
	for key, raw := range l.Lasting.All() {
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
		l.warn("prepare the cgroup of a container", l.prepare(n))
	}
	for _, n := range noted {
		l.meet(n.Labelled, func(path string) bool { return !l.admitted(path) })
	}
}

// prepare watches the parent of a container's cgroup before the engine creates it: a
// runtime creates both at once after a reboot, and starts the process before a watch
// that begins only then. If the container ran when the host stopped, prepare creates its
// cgroup, too, so that its ports are published before the engine starts it, however busy
// the host is; a runtime uses a cgroup that exists. A slice is left to systemd. The caller
// must have locked mu.
func (l *Labels) prepare(n labelledNote) error {
	if n.Cgroup == "" || !filepath.IsLocal(n.Cgroup) {
		return nil
	}
	path := filepath.Join(l.Root, n.Cgroup)
	parent := filepath.Dir(path)
	if strings.HasSuffix(parent, ".slice") {
		return l.where.watch(parent)
	}
	err := os.MkdirAll(parent, 0o755)
	if err == nil {
		err = l.where.watch(parent)
	}
	if err == nil && n.Runs {
		if err = os.Mkdir(path, 0o755); err == nil {
			l.prepared[path] = true
		} else if errors.Is(err, os.ErrExist) {
			err = nil // it runs, or the runtime has just created it
		}
	}
	return err
}

// unprepare removes the prepared cgroups of containers that the engine has not started.
func (l *Labels) unprepare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path := range l.prepared {
		_ = os.Remove(path) // it fails if a container runs in it
	}
	clear(l.prepared)
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
	exists := map[string]bool{}
	for _, c := range containers {
		exists[c.ID] = true
		key := labelledKey + c.ID
		c.Running, c.Starting = false, false
		n, known := noted[key]
		switch {
		case !c.HostNetwork:
		case known && reflect.DeepEqual(n.Labelled, c):
			delete(changes, key)
		default:
			changes[key] = labelledNote{c, n.Cgroup, n.Runs}
		}
	}
	l.put(l.Lasting, changes)
	if all {
		l.unrestart(exists)
	}
}

// noteRun stores whether a container runs, and where its cgroup is.
func (l *Labels) noteRun(id, cgroup string, runs bool) {
	l.noting.Lock()
	defer l.noting.Unlock()
	key := labelledKey + id
	n, known := l.notes()[key]
	is := n
	is.Runs = runs
	if cgroup != "" {
		is.Cgroup, _ = filepath.Rel(l.Root, cgroup) // both are absolute
	}
	if known && !reflect.DeepEqual(is, n) {
		l.put(l.Lasting, map[string]any{key: is})
	}
}

// forget removes the notes about a container.
func (l *Labels) forget(id string) {
	l.noting.Lock()
	defer l.noting.Unlock()
	l.put(l.Lasting, map[string]any{labelledKey + id: nil})
	l.put(l.Passing, map[string]any{restartedKey + id: nil})
}

// put writes notes, and reports whether that succeeded. It writes nothing if none of them changes.
func (l *Labels) put(to Notes, changes map[string]any) bool {
	known := to.All()
	maps.DeleteFunc(changes, func(key string, value any) bool { return value == nil && known[key] == nil })
	if len(changes) == 0 {
		return true
	}
	err := to.Put(changes)
	l.warn("note containers", err)
	return err == nil
}
