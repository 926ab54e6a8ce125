// Package check_test proves that the checks of this folder can fail.
package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestNoSkips(t *testing.T) {
	const passed = `{"Time":"2026-11-20T10:00:00Z","Action":"skip","Package":"fairlead/cmd/fairlead","Elapsed":0}
{"Time":"2026-11-20T10:00:00Z","Action":"pass","Package":"fairlead/internal/kernel","Test":"TestApply","Elapsed":0}
`
	const skipped = `{"Time":"2026-11-20T10:00:00Z","Action":"skip","Package":"fairlead/internal/kernel","Test":"TestApply/v6","Elapsed":0}
`
	file := filepath.Join(t.TempDir(), "test.json")
	write(t, file, passed)
	if out, err := run(".", "no-skips", file); err != nil {
		t.Errorf("no test was skipped, and yet: %v\n%s", err, out)
	}
	write(t, file, passed+skipped)
	out, err := run(".", "no-skips", file)
	if err == nil || !strings.Contains(out, "fairlead/internal/kernel TestApply/v6") {
		t.Errorf("a skipped test gives %v and\n%s", err, out)
	}
}

func TestBinaries(t *testing.T) {
	repo := t.TempDir()
	elf := make([]byte, 64)
	copy(elf, "\x7fELF\x02\x01\x01")
	elf[18] = 62 // x86-64
	bpf := append([]byte{}, elf...)
	bpf[18] = 247
	write(t, filepath.Join(repo, "text.go"), "package text\n")
	write(t, filepath.Join(repo, "program_bpfel.o"), string(bpf))
	write(t, filepath.Join(repo, "docs/img/picture.png"), "\x89PNG\x00")
	git(t, repo, "init", "-q")
	git(t, repo, "add", ".")
	if out, err := run(repo, "binaries"); err != nil {
		t.Errorf("nothing is wrong, and yet: %v\n%s", err, out)
	}
	for _, name := range []string{"tool", "native.o", "picture.png"} {
		write(t, filepath.Join(repo, name), string(elf))
	}
	git(t, repo, "add", ".")
	out, err := run(repo, "binaries")
	want := "tracked binary: native.o\ntracked binary: picture.png\ntracked binary: tool\n"
	if err == nil || out != want {
		t.Errorf("three binaries give %v and\n%s", err, out)
	}
}

func TestFresh(t *testing.T) {
	repo := t.TempDir()
	write(t, filepath.Join(repo, "docs/page.md"), "fresh\n")
	write(t, filepath.Join(repo, "Makefile"), "generate:\n\t@echo fresh > docs/page.md\n")
	git(t, repo, "init", "-q")
	if out, err := run(repo, "fresh", "docs"); err != nil {
		t.Errorf("the page is fresh, and yet: %v\n%s", err, out)
	}
	write(t, filepath.Join(repo, "docs/page.md"), "stale\n")
	if out, err := run(repo, "fresh", "docs"); err == nil || !strings.Contains(out, "-stale\n+fresh") {
		t.Errorf("a stale page gives %v and\n%s", err, out)
	}
}

func run(dir, name string, args ...string) (string, error) {
	script, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(script, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
