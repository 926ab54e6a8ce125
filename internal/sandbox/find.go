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

	"fairlead/internal/kernel"

	"golang.org/x/sys/unix"
)

// startMark stands in an id before the start time of the process.
const startMark = "@"

// find looks for a name of one kind. Nothing found means that for certain
// there is none.
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

// asPID reads a pid as /proc writes it.
func asPID(text string) (pid int, ok bool) {
	pid, err := strconv.Atoi(text)
	return pid, err == nil && pid > 0 && text == strconv.Itoa(pid)
}

func findProcess(name string) []finding {
	pid, ok := asPID(name)
	if !ok {
		return []finding{{err: fmt.Errorf("%q is no pid: want a number, e.g. 4711", name)}}
	}
	s, err := ofProcess(pid)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s.Ref, s.Kind, s.Name = "pid:"+name, Process, name
	return []finding{{is: s, err: err}}
}

// findNetns looks for a name as `ip netns` does.
func (f Finder) findNetns(name string) []finding {
	if !isNetnsName(name) {
		return []finding{{err: fmt.Errorf("%q is no name of a network namespace: a path is absolute, e.g. /run/netns/web", name)}}
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
		return []finding{{err: fmt.Errorf("%q is no absolute path", name)}}
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

// identified completes a sandbox by the identity of the namespace at its path.
func identified(s Sandbox) finding {
	var err error
	if s.ID, err = identity(s.Path); errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return finding{is: s, err: err}
}

// ofProcess describes the namespace of a process. The error is
// os.ErrNotExist when there is no such process, or a dead one.
func ofProcess(pid int) (Sandbox, error) {
	s := Sandbox{Path: fmt.Sprintf("/proc/%d/ns/net", pid), PID: pid}
	// The open directory stays that of this process, whoever gets its pid.
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

// startTime is when a process has started, in clock ticks since the boot:
// field 22 of proc(5)'s stat. The second field may hold blanks and brackets.
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

// identity returns the id of the namespace at path, and ErrHost if it is our
// own.
func identity(path string) (string, error) {
	id, err := kernel.Identify(path)
	if err != nil {
		return "", err
	}
	host, err := kernel.Identify("")
	if err == nil && id == host {
		err = fmt.Errorf("%w, where nothing can be attached: publish its ports via socket, as `fairlead run` does", ErrHost)
	}
	return id, err
}
