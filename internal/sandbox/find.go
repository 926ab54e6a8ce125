package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// startMark precedes the start time of the process in Sandbox.ID.
const startMark = "@"

// find finds the sandboxes with a name of one kind. An empty result means that
// there is certainly none.
func (f Finder) find(ctx context.Context, kind Kind, name string) []finding {
	switch kind {
	case Process:
		return findProcess(name)
	case Netns:
		return f.findNetns(name)
	case Path:
		return findPath(name)
	}
	return f.findContainer(ctx, name)
}

// asPID parses a PID in the form that /proc uses.
func asPID(text string) (pid int, ok bool) {
	pid, err := strconv.Atoi(text)
	return pid, err == nil && pid > 0 && text == strconv.Itoa(pid)
}

func findProcess(name string) []finding {
	pid, ok := asPID(name)
	if !ok {
		return []finding{{err: fmt.Errorf("%q is not a PID: want a number, e.g. 4711", name)}}
	}
	s, err := ofProcess(pid)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s.Ref, s.Kind, s.Name = "pid:"+name, Process, name
	return []finding{{sandbox: s, err: err}}
}

// findNetns finds a namespace by its name, as `ip netns` does.
func (f Finder) findNetns(name string) []finding {
	if !isNetnsName(name) {
		return []finding{{err: fmt.Errorf(
			"%q is not a valid name of a network namespace: a path must be absolute, e.g. /run/netns/web", name)}}
	}
	path := filepath.Join(f.NetnsDir, name)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s := Sandbox{Ref: "netns:" + name, Kind: Netns, Name: name, Path: path}
	return []finding{identified(s)}
}

var ofProc = regexp.MustCompile(`^/proc/([1-9][0-9]*)/ns/net$`)

func findPath(name string) []finding {
	if !filepath.IsAbs(name) || strings.Contains(name, "\x00") {
		return []finding{{err: fmt.Errorf("%q is not an absolute path", name)}}
	}
	path := filepath.Clean(name)
	if m := ofProc.FindStringSubmatch(path); m != nil {
		return findProcess(m[1])
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s := Sandbox{Ref: "path:" + path, Kind: Path, Name: path, Path: path}
	return []finding{identified(s)}
}

// identified adds the identity of the namespace at the sandbox's path.
func identified(s Sandbox) finding {
	var err error
	if s.ID, err = identity(s.Path); errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return finding{sandbox: s, err: err}
}

// ofProcess returns the sandbox of a process. It returns os.ErrNotExist if there
// is no such process, or if it is a zombie.
func ofProcess(pid int) (Sandbox, error) {
	s := Sandbox{Path: fmt.Sprintf("/proc/%d/ns/net", pid), PID: pid}
	// The open directory refers to this process even if another one gets its PID.
	dir, err := os.Open(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return s, err
	}
	defer dir.Close()
	in := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	start, err := startTime(in)
	if err != nil {
		return s, err
	}
	s.ID, err = identity(in + "/ns/net")
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	s.ID += startMark + start
	return s, err
}

// startTime returns when a process started, in clock ticks since the boot: field
// 22 of /proc/PID/stat, see proc(5). The second field may contain blanks and
// parentheses.
func startTime(dir string) (string, error) {
	stat, err := os.ReadFile(dir + "/stat")
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	if err != nil {
		return "", err
	}
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("read %s/stat: too short", dir)
	}
	return fields[19], nil
}

// identity returns the ID of the namespace at path. It returns ErrHost if that is
// the host's namespace.
func identity(path string) (string, error) {
	id, err := netns.Identify(path)
	if err != nil {
		return "", err
	}
	host, err := netns.Identify("")
	if err == nil && id == host {
		err = fmt.Errorf("%w, where nothing can be attached: publish its ports via socket, as `fairlead run` does",
			ErrHost)
	}
	return id, err
}
