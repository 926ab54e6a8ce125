package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/sandbox"

	"golang.org/x/sys/unix"
)

// named creates a network namespace with a name in the finder's directory, as
// `ip netns add` does.
func named(t *testing.T, f sandbox.Finder, name string) *netns.Namespace {
	t.Helper()
	ns := kerneltest.Netns(t)
	bind(t, f, name, ns.Path())
	return ns
}

func bind(t *testing.T, f sandbox.Finder, name, path string) {
	t.Helper()
	file := filepath.Join(f.NetnsDir, name)
	if err := os.WriteFile(file, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(path, file, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unname(t, f, name) })
}

// unname removes a name, as `ip netns del` does. It ignores a missing name.
func unname(t *testing.T, f sandbox.Finder, name string) {
	t.Helper()
	file := filepath.Join(f.NetnsDir, name)
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) &&
		!errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// workload starts a process that waits, in the namespace or, if ns is nil, in the
// namespace of the test.
func workload(t *testing.T, ns *netns.Namespace) *child.Process {
	t.Helper()
	at := child.Place{}
	if ns != nil {
		at.Netns = ns.File()
	}
	p, err := child.Start(t.Context(), exec.Command("sleep", "infinity"), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

// finder returns a Finder with a temporary directory and the given engines.
func finder(t *testing.T, engines ...string) sandbox.Finder {
	t.Helper()
	return sandbox.Finder{NetnsDir: t.TempDir(), Engines: engines}
}

// want is the sandbox that a text must resolve to.
type want struct {
	ref  string
	path string
	pid  int
}

func resolves(t *testing.T, f sandbox.Finder, text string, w want) sandbox.Sandbox {
	t.Helper()
	s, err := f.Resolve(t.Context(), text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return s
	}
	if got := (want{s.Ref, s.Path, s.PID}); got != w {
		t.Errorf("%s resolves to %+v, want %+v", text, got, w)
	}
	if s.ID == "" || string(s.Kind)+":"+s.Name != s.Ref {
		t.Errorf("%s: incomplete: %+v", text, s)
	}
	return s
}

// refuses checks that a text does not resolve, and the error.
func refuses(t *testing.T, f sandbox.Finder, text string, is error, words string) {
	t.Helper()
	s, err := f.Resolve(t.Context(), text)
	switch {
	case err == nil:
		t.Errorf("%s resolves to %+v, want an error", text, s)
	case !strings.Contains(err.Error(), words):
		t.Errorf("%s: %v: want %q", text, err, words)
	case is != nil && !errors.Is(err, is):
		t.Errorf("%s: %v: want it to be: %v", text, err, is)
	case is == nil && errors.Is(err, sandbox.ErrAbsent):
		t.Errorf("%s: %v: the error must not be ErrAbsent", text, err)
	}
}

func TestProcess(t *testing.T) {
	f := finder(t)
	pid := workload(t, kerneltest.Netns(t)).Cmd.Process.Pid
	w := want{fmt.Sprintf("pid:%d", pid), fmt.Sprintf("/proc/%d/ns/net", pid), pid}
	s := resolves(t, f, fmt.Sprint(pid), w)
	if again := resolves(t, f, w.ref, w); again.ID != s.ID {
		t.Errorf("two searches return the IDs %s and %s", s.ID, again.ID)
	}
	if by := resolves(t, f, w.path, w); by.ID != s.ID {
		t.Errorf("by path the ID is %s, want %s", by.ID, s.ID)
	}
	other := workload(t, kerneltest.Netns(t)).Cmd.Process.Pid
	if o := resolves(t, f, fmt.Sprint(other),
		want{fmt.Sprintf("pid:%d", other), fmt.Sprintf("/proc/%d/ns/net", other), other}); o.ID == s.ID {
		t.Errorf("two sandboxes have the ID %s", s.ID)
	}
}

func TestUnusableProcess(t *testing.T) {
	f := finder(t)
	refuses(t, f, fmt.Sprint(workload(t, nil).Cmd.Process.Pid), sandbox.ErrHost,
		"publish its ports via socket, as `fairlead run` does")
	refuses(t, f, "999999999", sandbox.ErrAbsent,
		"neither a container nor a network namespace of `ip netns` nor a process has that name")
	refuses(t, f, "pid:999999999", sandbox.ErrAbsent, "no such sandbox")
	for _, text := range []string{"pid:0", "pid:-1", "pid:self", "pid:", "pid:01", "pid:4711/../1"} {
		refuses(t, f, text, nil, "is not a PID: want a number")
	}
}

// TestZombie: a zombie has no namespace, although its PID is still in use.
func TestZombie(t *testing.T) {
	p := exec.Command("cat")
	in, err := p.StdinPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := unix.Waitid(unix.P_PID, p.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	refuses(t, finder(t), fmt.Sprintf("pid:%d", p.Process.Pid), sandbox.ErrAbsent, "no such sandbox")
	_ = p.Wait()
}

func TestNetns(t *testing.T) {
	f := finder(t)
	ns := named(t, f, "web")
	path := filepath.Join(f.NetnsDir, "web")
	w := want{"netns:web", path, 0}
	s := resolves(t, f, "web", w)
	resolves(t, f, "netns:web", w)
	if p := resolves(t, f, path, want{"path:" + path, path, 0}); p.ID != s.ID {
		t.Errorf("by path the ID is %s, want %s", p.ID, s.ID)
	}
	if err := os.Symlink(path, filepath.Join(f.NetnsDir, "alias")); err != nil {
		t.Fatal(err)
	}
	resolves(t, f, "alias", want{"netns:alias", filepath.Join(f.NetnsDir, "alias"), 0})

	// The name moves to another namespace, which may have the inode of the first.
	unname(t, f, "web")
	refuses(t, f, "netns:web", sandbox.ErrAbsent, "no such sandbox")
	ns.Close()
	named(t, f, "web")
	if again := resolves(t, f, "web", w); again.ID == s.ID {
		t.Errorf("another namespace with the name has the same ID, %s", s.ID)
	}
}

func TestUnusableNetns(t *testing.T) {
	f := finder(t)
	for _, text := range []string{"../web", "netns:..", "netns:.", "netns:", "netns:a/b", "./web",
		"web/../../proc/1/ns/net", "netns:web\x00"} {
		refuses(t, f, text, nil, "is not a valid name of a network namespace: a path must be absolute")
	}
	refuses(t, f, "web", sandbox.ErrAbsent, "neither a container nor")
	if err := os.WriteFile(filepath.Join(f.NetnsDir, "stale"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	refuses(t, f, "stale", sandbox.ErrAbsent, "the file is not a network namespace")
	bind(t, f, "mounts", "/proc/self/ns/uts")
	refuses(t, f, "mounts", nil, "enter network namespace")
	bind(t, f, "host", "/proc/self/ns/net")
	refuses(t, f, "host", sandbox.ErrHost, "publish its ports via socket")
	refuses(t, f, "", nil, "name a container, a pid")
}

func TestUnusablePath(t *testing.T) {
	f := finder(t)
	refuses(t, f, "/nowhere", sandbox.ErrAbsent, "no such sandbox")
	refuses(t, f, "/proc/self/ns/net", sandbox.ErrHost, "")
	refuses(t, f, "/etc/passwd", sandbox.ErrAbsent, "the file is not a network namespace")
	refuses(t, f, "path:web", nil, "is not an absolute path")
}
