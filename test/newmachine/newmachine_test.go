// Package newmachine_test runs the README's first commands on a new machine: a Debian 12 from
// debootstrap, with Go, make and git. It finds dependencies that are missing there although a
// developer's machine has them.
//
// The packages that `make test` installs first need two minutes of CPU time. The test installs them when what names or
// installs them has changed, and once a month, because Debian changes. The system with them is stored outside the
// checkout, and the tests run on it.
package newmachine_test

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFirstCommands runs all of `make lab`, with few and short rounds, and those tests of `make
// test` that use most of the installed packages. Two of the tests call bpftool.
func TestFirstCommands(t *testing.T) {
	out := newMachine(t).run("make lab LAB_FLAGS='--rounds 3 --duration 20ms --shared'")
	if !strings.Contains(out, "full report: ./fairlead-quick.html") {
		t.Errorf("make lab has written no report:\n%s", out)
	}
	out = newInstalled(t).run(`make test TEST='./internal/daemon ./test/script' TEST_FLAGS='-run "TestHealBridge|TestSessions/servicerepair"'`)
	if !strings.Contains(out, "DONE 3 tests") && !strings.Contains(out, "DONE 4 tests") {
		t.Errorf("make test did not run the selected tests:\n%s", out)
	}
}

// machine is a Debian system below a directory.
type machine struct {
	*testing.T
	root string
	// below is a directory with files that the system sees, too, and cannot change. If it is not empty, what the system
	// writes ends with the command.
	below string
}

// newMachine creates the system, with a copy of this checkout in /src.
func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{T: t, root: filepath.Join(t.TempDir(), "root")}
	m.unpack()
	return m
}

// unpack writes the files of a new system.
func (m machine) unpack() {
	m.Helper()
	m.copySource()
	command(m.T, "tar", "-C", m.root, "-xf", debian(m.T))
}

// copySource copies this checkout to /src.
func (m machine) copySource() {
	m.Helper()
	source := filepath.Join(m.root, "src")
	if err := os.MkdirAll(source, 0o755); err != nil {
		m.Fatal(err)
	}
	command(m.T, "sh", "-c",
		`cd ../.. && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$0"`, source)
}

// newInstalled creates a system that has what `make test` installs, with a copy of this checkout in /src.
func newInstalled(t *testing.T) machine {
	t.Helper()
	m := machine{T: t, root: filepath.Join(t.TempDir(), "root"), below: installed(t)}
	m.copySource()
	return m
}

// installs are the files that decide what `make test` installs, and how.
var installs = []string{"../packages", "../install-debian", "../../Makefile", "testdata/inside"}

// installed returns a directory with a system after `make debian`. It is created if one of the files installs has
// changed, or this machine's month.
func installed(t *testing.T) string {
	t.Helper()
	key := sha256.New()
	fmt.Fprintln(key, debian(t))
	for _, file := range installs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(key, "%s %d\n%s", file, len(text), text)
	}
	dir := filepath.Join(cache(), fmt.Sprintf("installed-%s-%x", time.Now().Format("2006-01"), key.Sum(nil)[:8]))
	removeUnused(t, dir)
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err == nil {
		return dir
	}
	root, err := os.MkdirTemp(cache(), "installing-")
	if err == nil {
		err = os.Chmod(root, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // if the installation has failed
	m := machine{T: t, root: root}
	m.unpack()
	m.run("make debian")
	const trim = `cd "$0" && rm -f var/cache/apt/archives/*.deb
mv src/bin bin-of-src && rm -r src && mkdir src && mv bin-of-src src/bin`
	command(t, "sh", "-ec", trim, root)
	if err := os.Rename(root, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another run may have been faster
		t.Fatal(err)
	}
	return dir
}

// removeUnused removes what installed has created, except one directory, if no run has used it for a day. That includes
// what a run that was killed has left.
func removeUnused(t *testing.T, except string) {
	t.Helper()
	for _, made := range []string{"installed-*", "installing-*"} {
		all, err := filepath.Glob(filepath.Join(cache(), made))
		for _, dir := range all {
			info, failed := os.Stat(dir)
			if errors.Is(failed, fs.ErrNotExist) { // another run has removed or renamed it
				continue
			}
			if failed == nil && dir != except && time.Since(info.ModTime()) > 24*time.Hour {
				failed = os.RemoveAll(dir)
			}
			err = errors.Join(err, failed)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveUnused: a system that is used, and one that is being installed, stay.
func TestRemoveUnused(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for name, days := range map[string]int{"installed-a": 2, "installed-b": 2, "installed-c": 0, "installing-d": 2,
		"installing-e": 0, "debian.tar": 2} {
		dir, at := filepath.Join(cache(), name), time.Now().AddDate(0, 0, -days)
		err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755)
		if err = errors.Join(err, os.Chtimes(dir, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	removeUnused(t, filepath.Join(cache(), "installed-a"))
	left, err := fs.Glob(os.DirFS(cache()), "*")
	want := []string{"debian.tar", "installed-a", "installed-c", "installing-e"}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("%v, %v is left, want %v", left, err, want)
	}
}

// cache returns the directory for what is created once.
func cache() string {
	return filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), "/var/cache"), "fairlead-test")
}

// debian returns an archive of Debian 12 from debootstrap. It is created once, and stored outside the checkout.
func debian(t *testing.T) string {
	t.Helper()
	mirror := strings.Fields(command(t, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
		"Origin: Debian", "Codename: bookworm"))
	if len(mirror) == 0 {
		t.Fatal("the apt sources have no mirror of Debian 12")
	}
	args := []string{"--variant=minbase", "--include=make,git,ca-certificates", "bookworm"}
	key := sha256.Sum256([]byte(strings.Join(append(args, mirror[0]), " ")))
	archive := filepath.Join(cache(), fmt.Sprintf("debian-%x.tar", key[:8]))
	if _, err := os.Stat(archive); err == nil {
		return archive
	}
	root := filepath.Join(t.TempDir(), "debian")
	// The system ends with the test, so dpkg need not wait until its files are on the disk.
	write(t, filepath.Join(root, "etc/dpkg/dpkg.cfg.d/unsafe-io"), "force-unsafe-io\n")
	command(t, "debootstrap", append(args, root, mirror[0])...)
	const pack = `mkdir -p "${0%/*}"
tar -C "$1" --exclude='./var/cache/apt/archives/*.deb' -cf "$0.$$" .
mv "$0.$$" "$0"`
	command(t, "sh", "-ec", pack, archive, root)
	return archive
}

func write(t *testing.T, file, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a shell command in the checkout and returns its output.
func (m machine) run(shell string) string {
	m.Helper()
	return command(m.T, "unshare", "--mount", "--pid", "--fork", "--kill-child", "testdata/inside", m.root, shell,
		m.below)
}

// command runs a command on this machine and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
