// Package newmachine_test runs the README's first commands on a new machine: a Debian 12 from
// debootstrap, with Go, make and git. It finds dependencies that are missing there although a
// developer's machine has them.
package newmachine_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFirstCommands runs all of `make lab`, with few and short rounds, and those tests of `make
// test` that use most of the installed packages. Two of the tests call bpftool.
func TestFirstCommands(t *testing.T) {
	machine := newMachine(t)
	out := machine.run("make lab LAB_FLAGS='--rounds 3 --duration 20ms --shared'")
	if !strings.Contains(out, "full report: ./fairlead-quick.html") {
		t.Errorf("make lab has written no report:\n%s", out)
	}
	out = machine.run(`make test TEST='./internal/daemon ./test/script' TEST_FLAGS='-run "TestHealBridge|TestSessions/servicerepair"'`)
	if !strings.Contains(out, "DONE 3 tests") && !strings.Contains(out, "DONE 4 tests") {
		t.Errorf("make test did not run the selected tests:\n%s", out)
	}
}

// machine is a Debian system below a directory.
type machine struct {
	*testing.T
	root string
}

// newMachine creates the system, with a copy of this checkout in /src.
func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t, filepath.Join(t.TempDir(), "root")}
	source := filepath.Join(m.root, "src")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "tar", "-C", m.root, "-xf", debian(t))
	command(t, "sh", "-c",
		`cd ../.. && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$0"`, source)
	return m
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
	cache := filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), "/var/cache"), "fairlead-test")
	key := sha256.Sum256([]byte(strings.Join(append(args, mirror[0]), " ")))
	archive := filepath.Join(cache, fmt.Sprintf("debian-%x.tar", key[:8]))
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
	return command(m.T, "unshare", "--mount", "--pid", "--fork", "--kill-child", "testdata/inside", m.root, shell)
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
