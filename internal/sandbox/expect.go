package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Expect returns the reference of a sandbox that need not run yet. The text must
// contain the kind (e.g. container:shop) or be an absolute path, because the kind
// of a sandbox that does not run cannot be found out. A process is an error: it
// cannot come back.
func Expect(text string) (Sandbox, error) {
	kind, name, explicit := cutKind(text)
	if !explicit && strings.HasPrefix(text, "/") {
		kind, name, explicit = Path, text, true
	}
	switch {
	case !explicit:
		return Sandbox{}, fmt.Errorf(
			"sandbox %q: no running sandbox has this name: add its kind, e.g. container:shop or netns:shop", text)
	case kind == Container && !containerName.MatchString(name):
		return Sandbox{}, fmt.Errorf("sandbox %q: not a valid container name", text)
	case kind == Netns && !isNetnsName(name):
		return Sandbox{}, fmt.Errorf("sandbox %q: not a valid name of a network namespace", text)
	case kind == Path && (!filepath.IsAbs(name) || strings.Contains(name, "\x00")):
		return Sandbox{}, fmt.Errorf("sandbox %q: want an absolute path", text)
	case kind == Process || kind == Path && ofProc.MatchString(filepath.Clean(name)):
		return Sandbox{}, errors.New(
			"a process does not come back, and another process may get its PID: name the sandbox by its container, its network namespace or its path")
	case kind == Path:
		name = filepath.Clean(name)
	}
	return Sandbox{Ref: string(kind) + ":" + name, Kind: kind, Name: name}, nil
}

// isNetnsName reports whether the name is a single path component, so that it
// cannot refer to a file outside the directory of `ip netns`.
func isNetnsName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") &&
		len(name) <= unix.NAME_MAX
}
