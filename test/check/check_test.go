// Package check_test tests that the checks of this folder can fail.
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
		t.Errorf("no test was skipped, but the check fails: %v\n%s", err, out)
	}
	write(t, file, passed+skipped)
	out, err := run(".", "no-skips", file)
	if err == nil || !strings.Contains(out, "fairlead/internal/kernel TestApply/v6") {
		t.Errorf("a skipped test returns %v and prints\n%s", err, out)
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
		t.Errorf("there is no binary, but the check fails: %v\n%s", err, out)
	}
	for _, name := range []string{"tool", "native.o", "picture.png"} {
		write(t, filepath.Join(repo, name), string(elf))
	}
	git(t, repo, "add", ".")
	out, err := run(repo, "binaries")
	want := "tracked binary: native.o\ntracked binary: picture.png\ntracked binary: tool\n"
	if err == nil || out != want {
		t.Errorf("three binaries return %v and print\n%s", err, out)
	}
}

func TestFresh(t *testing.T) {
	repo := t.TempDir()
	write(t, filepath.Join(repo, "docs/page.md"), "fresh\n")
	write(t, filepath.Join(repo, "Makefile"), "generate:\n\t@echo fresh > docs/page.md\n")
	git(t, repo, "init", "-q")
	if out, err := run(repo, "fresh", "docs"); err != nil {
		t.Errorf("the page is current, but the check fails: %v\n%s", err, out)
	}
	write(t, filepath.Join(repo, "docs/page.md"), "stale\n")
	if out, err := run(repo, "fresh", "docs"); err == nil || !strings.Contains(out, "-stale\n+fresh") {
		t.Errorf("a stale page returns %v and prints\n%s", err, out)
	}
}

func TestWords(t *testing.T) {
	repo := t.TempDir()
	list := filepath.Join(t.TempDir(), "list")
	write(t, list, "# comment\nsteer redirect\nled  mapped\nallow \\bLEDs?\\b\nspare old\n")
	write(t, filepath.Join(repo, "plain.go"), "// A handled, misled steering is no steers.\nvar pledLed, LEDs int\n")
	write(t, filepath.Join(repo, "old/page.md"), "They steer.\n")
	git(t, repo, "init", "-q")
	git(t, repo, "add", ".")
	const one = "plain.go:2: \"Led\": write mapped\n"
	if out, err := run(repo, "words", list); err == nil || out != one {
		t.Errorf("a retired word in an identifier returns %v and prints\n%s", err, out)
	}
	write(t, filepath.Join(repo, "plain.go"), "// Fine.\n")
	if out, err := run(repo, "words", list); err != nil {
		t.Errorf("there is no retired word, but the check fails: %v\n%s", err, out)
	}
	write(t, filepath.Join(repo, "plain.c"), "int steer_it; /* is led */\n")
	git(t, repo, "add", ".")
	out, err := run(repo, "words", list)
	if want := "plain.c:1: \"steer\": write redirect\nplain.c:1: \"led\": write mapped\n"; err == nil || out != want {
		t.Errorf("two retired words return %v and print\n%s", err, out)
	}
}

func TestSubjects(t *testing.T) {
	repo := t.TempDir()
	git(t, repo, "init", "-q")
	commit := func(subject string) {
		t.Helper()
		git(t, repo, "-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "-q", "--allow-empty", "-m",
			subject)
	}
	commit("Any subject is accepted before the check was added")
	write(t, filepath.Join(repo, "test/check/subjects"), "the check\n")
	git(t, repo, "add", ".")
	commit("The commit that adds the check is exempt too")
	commit("internal/plan, docs: name the object")
	if out, err := run(repo, "subjects"); err != nil {
		t.Errorf("all subjects are valid, but the check fails: %v\n%s", err, out)
	}
	long := "plan: " + strings.Repeat("x", 67)
	commit("No area")
	commit(long)
	out, err := run(repo, "subjects")
	want := "commit subject of 73 columns, want at most 72: " + long +
		"\ncommit subject: want \"area: change\": No area\n"
	if err == nil || out != want {
		t.Errorf("two wrong subjects return %v and print\n%s", err, out)
	}
}

// TestPath runs test/path for a checkout that declares only nft.
func TestPath(t *testing.T) {
	repo := t.TempDir()
	script, err := os.ReadFile("../path")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(repo, "test/path"), string(script))
	write(t, filepath.Join(repo, "test/packages"), "# COMMAND PACKAGE\nnft nftables # a reason\n")
	paths := func() (string, error) {
		out, err := exec.Command("bash", filepath.Join(repo, "test/path")).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	path, err := paths()
	if err != nil {
		t.Fatalf("test/path: %v\n%s", err, path)
	}
	find := func(command string) error {
		_, err := os.Stat(filepath.Join(path, command))
		return err
	}
	for _, command := range []string{"nft", "go", "make", "git", "sh", "awk"} {
		if err := find(command); err != nil {
			t.Errorf("a declared command, or one that every Debian has, is missing: %v", err)
		}
	}
	for _, command := range []string{"bpftool", "iperf3", "dockerd"} {
		if find(command) == nil {
			t.Errorf("%s is found, but not declared", command)
		}
	}
	write(t, filepath.Join(repo, "test/packages"), "no-such-command no-such-package\n")
	if out, err := paths(); err == nil || !strings.Contains(out,
		"no-such-command is missing: run test/install-debian") {
		t.Errorf("a declared command that is not installed returns %v and prints\n%s", err, out)
	}
}

// TestGoVersion runs test/check/go with compilers of several versions.
func TestGoVersion(t *testing.T) {
	for _, c := range []struct{ version, toolchain, says string }{
		{"go version go1.26.8 linux/amd64", "auto", ""},
		{"go version devel go1.27-abcdef linux/amd64", "local", ""},
		{"go version go1.21.0 linux/amd64", "auto", ""},
		{"go version go1.24.4 linux/amd64", "local", "older than 1.26.0 and may not download it (GOTOOLCHAIN=local)"},
		{"go version go1.19.8 linux/amd64", "auto",
			"Go 1.19.8 is too old to build Fairlead. Install Go 1.26.0, or any Go from 1.21 on"},
		{"", "", "needs Go, and no go is in PATH. Install Go 1.26.0"},
	} {
		repo := t.TempDir()
		write(t, filepath.Join(repo, "go.mod"), "module fairlead\n\ngo 1.26.0\n")
		bin := filepath.Join(repo, "bin")
		for _, command := range []string{"bash", "env", "awk", "sed", "sort", "tail"} {
			link(t, command, bin)
		}
		if c.version != "" {
			write(t, filepath.Join(bin, "go"), "#!/bin/sh\ncase $1 in version) echo '"+c.version+"' ;; env) echo "+
				c.toolchain+" ;; esac\n")
			if err := os.Chmod(filepath.Join(bin, "go"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("bash", "-c", `PATH=$1 exec bash "$2"`, "bash", bin, absolute(t, "go"))
		cmd.Dir = repo
		out, err := cmd.CombinedOutput()
		if (err == nil) != (c.says == "") || !strings.Contains(string(out), c.says) ||
			strings.Count(string(out), "\n") > 1 {
			t.Errorf("%q with GOTOOLCHAIN=%s returns %v and prints\n%s", c.version, c.toolchain, err, out)
		}
	}
}

// link puts a command of this machine into a folder.
func link(t *testing.T, command, folder string) {
	t.Helper()
	path, err := exec.LookPath(command)
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = os.Symlink(path, filepath.Join(folder, command))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
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
