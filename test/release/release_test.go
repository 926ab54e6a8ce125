// Package release_test builds the artefacts of a release as `make release` does, and installs the packages in Debian
// systems with systemd as PID 1.
package release_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the artefacts are built with. The commit and its time are no values of the checkout, because the copies of it
// are no repositories.
const (
	commit = "0123456789ab"
	epoch  = "1790000000"
)

// directory has what built has made, "" before. TestMain removes it.
var directory string

func TestMain(m *testing.M) {
	status := m.Run()
	if directory != "" {
		_ = os.RemoveAll(directory) // what stays is in the directory for temporary files
	}
	os.Exit(status)
}

// built returns the directory with the artefacts of a release.
var built = sync.OnceValues(func() (dist string, err error) {
	if directory, err = os.MkdirTemp("", "fairlead-release-"); err != nil {
		return "", err
	}
	return build(filepath.Join(directory, "src"))
})

// build copies this checkout, makes a release in the copy, and returns the directory with the artefacts.
func build(source string) (dist string, err error) {
	const script = `set -e
mkdir -p "$0" && cd ../..
git ls-files -z --cached --others --exclude-standard --exclude=/bin | xargs -0 cp --parents -t "$0"
make -C "$0" release COMMIT=` + commit
	cmd := exec.Command("sh", "-c", script, source)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch, "FAIRLEAD_SIGN_KEY=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a release: %w\n%s", err, out)
	} else if !strings.Contains(string(out), "SHA256SUMS is not signed: FAIRLEAD_SIGN_KEY names no key") {
		return "", fmt.Errorf("the release without a key says nothing about its signature:\n%s", out)
	}
	return filepath.Join(source, "dist"), nil
}

// artefacts returns the directory with the artefacts, and the version.
func artefacts(t *testing.T) (dist, version string) {
	t.Helper()
	dist, err := built()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	return dist, strings.TrimSpace(string(text))
}

// run runs a command in a directory and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, &said, out)
	}
	return string(out)
}

// sums returns the checksums of the files in a directory by name.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return all
}

// TestReproducible makes the release in two directories, and compares all files.
func TestReproducible(t *testing.T) {
	first, version := artefacts(t)
	second, err := build(filepath.Join(t.TempDir(), "another", "place"))
	if err != nil {
		t.Fatal(err)
	}
	all := sums(t, first)
	if diff := cmp.Diff(all, sums(t, second)); diff != "" {
		t.Errorf("two builds differ, first (-), second (+):\n%s", diff)
	}
	for _, name := range []string{"SHA256SUMS", "fairlead-%s-image.tar",
		"fairlead-%s-linux-amd64.tar.gz", "fairlead-%s-linux-arm64.tar.gz",
		"fairlead-%s-linux-amd64.cdx.json", "fairlead-%s-linux-arm64.cdx.json",
		"fairlead_%s-1_amd64.deb", "fairlead_%s-1_arm64.deb",
		"fairlead-%s-1.x86_64.rpm", "fairlead-%s-1.aarch64.rpm",
		"fairlead_%s-r1_x86_64.apk", "fairlead_%s-r1_aarch64.apk"} {
		name = strings.ReplaceAll(name, "%s", version)
		if all[name] == "" {
			t.Errorf("the release has no file %s", name)
		}
		delete(all, name)
	}
	if len(all) > 0 {
		t.Errorf("the release has more files: %v", all)
	}
	run(t, second, "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
}

// TestSigned signs the checksums with a key, and checks the signature as the guide says.
func TestSigned(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "artefact"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	t.Setenv("GNUPGHOME", home)
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--kill", "gpg-agent").Run() }) // it ends without its directory, too
	run(t, dir, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "release@example.com",
		"ed25519")
	t.Setenv("FAIRLEAD_SIGN_KEY", "release@example.com")
	sign, err := filepath.Abs("../../packaging/sign")
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, sign, dir)
	run(t, dir, "gpg", "--batch", "--verify", "SHA256SUMS.asc", "SHA256SUMS")
	run(t, dir, "sha256sum", "--check", "--strict", "SHA256SUMS")
}

// host is the architecture of this machine. The artefacts are for it and for another one.
const host = runtime.GOARCH
