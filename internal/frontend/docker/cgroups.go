package docker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"fairlead/internal/inotify"

	"golang.org/x/sys/unix"
)

// usualParents are the parents of containers' cgroups with the engine's cgroup
// drivers cgroupfs and systemd.
var usualParents = []string{"docker", "system.slice"}

// containerID finds a container's ID in its cgroup's name, which is the ID or
// docker-ID.scope.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// groups watches with inotify which cgroups of containers are created and removed
// below some directories. These directories may be created later.
type groups struct {
	root    string
	inotify int
	// stop is an eventfd that ends read.
	stop   int
	parent map[int]string
}

// group is a container's cgroup that was created or removed.
type group struct {
	path, id string
	gone     bool
}

func watchGroups(root string) (*groups, error) {
	g := &groups{root: root, stop: -1, parent: map[int]string{}}
	var err error
	if g.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return nil, fmt.Errorf("open inotify: %w", err)
	}
	if g.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		g.close()
		return nil, fmt.Errorf("open eventfd: %w", err)
	}
	for _, dir := range append([]string{""}, usualParents...) {
		if err := g.watch(filepath.Join(root, dir)); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// close closes the file descriptors. read must have returned.
func (g *groups) close() {
	unix.Close(g.inotify)
	if g.stop >= 0 {
		unix.Close(g.stop)
	}
}

// end makes read return 0.
func (g *groups) end() {
	_, _ = unix.Write(g.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd takes eight bytes
}

// read waits for inotify events and reads them. It returns 0 after end.
func (g *groups) read(events []byte) (int, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(g.stop), Events: unix.POLLIN}, {Fd: int32(g.inotify), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		if err == nil && fds[0].Revents != 0 {
			return 0, nil
		}
		n := 0
		if err == nil {
			n, err = unix.Read(g.inotify, events)
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}

// watch watches a directory. A directory that does not exist is no error: it has no
// containers yet.
func (g *groups) watch(dir string) error {
	wd, err := unix.InotifyAddWatch(g.inotify, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	g.parent[wd] = dir
	return nil
}

// find returns the existing cgroups of a container, or of all containers if id is
// empty.
func (g *groups) find(id string) (found []group) {
	for _, dir := range g.parent {
		entries, _ := os.ReadDir(dir) // it may have been removed
		for _, e := range entries {
			if is := containerID.FindString(e.Name()); is != "" && (id == "" || id == is) {
				found = append(found, group{path: filepath.Join(dir, e.Name()), id: is})
			}
		}
	}
	return found
}

// parse parses inotify events. If one of usualParents was created, parse watches it
// too.
func (g *groups) parse(events []byte) (all []group, err error) {
	for _, e := range inotify.Events(events) {
		dir, known := g.parent[e.Watch]
		path := filepath.Join(dir, e.Name)
		switch id := containerID.FindString(e.Name); {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			all = append(all, g.find("")...)
		case e.Mask&unix.IN_IGNORED != 0:
			delete(g.parent, e.Watch)
		case !known:
		case id != "":
			all = append(all, group{path, id, e.Mask&unix.IN_DELETE != 0})
		case e.Mask&unix.IN_CREATE != 0 && dir == g.root && slices.Contains(usualParents, e.Name):
			err = errors.Join(err, g.watch(path))
			all = append(all, g.find("")...)
		}
	}
	return all, err
}
