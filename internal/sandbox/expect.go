package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Expect returns the reference of a sandbox that need not run yet. Of what it
// will be nobody can be asked, so the text must say its kind, or be a path.
func Expect(text string) (Sandbox, error) {
	kind, name, explicit := cutKind(text)
	if !explicit && strings.HasPrefix(text, "/") {
		kind, name, explicit = Path, text, true
	}
	switch {
	case !explicit:
		return Sandbox{}, fmt.Errorf("sandbox %q: nothing of that name runs: say what it will be, e.g. container:shop or netns:shop", text)
	case kind == Container && !containerName.MatchString(name):
		return Sandbox{}, fmt.Errorf("sandbox %q: that is no name of a container", text)
	case kind == Netns && !isNetnsName(name):
		return Sandbox{}, fmt.Errorf("sandbox %q: that is no name of a network namespace", text)
	case kind == Path && (!filepath.IsAbs(name) || strings.Contains(name, "\x00")):
		return Sandbox{}, fmt.Errorf("sandbox %q: want an absolute path", text)
	case kind == Process || kind == Path && ofProc.MatchString(filepath.Clean(name)):
		return Sandbox{}, errors.New("a process does not come back, and another may get its pid: name the sandbox by its container, its name or its path")
	case kind == Path:
		name = filepath.Clean(name)
	}
	return Sandbox{Ref: string(kind) + ":" + name, Kind: kind, Name: name}, nil
}

// isNetnsName reports whether the name is one component of a path, so that
// none leads out of the directory of `ip netns`.
func isNetnsName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && len(name) <= unix.NAME_MAX
}
