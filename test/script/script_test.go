package script_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"fairlead/internal/frontend/service"
	"fairlead/test/script"
)

// root is the project's folder, seen from this package's.
var root = must(filepath.Abs("../.."))

// binary runs in place of a built one, to try documentation against a
// fairlead of another version.
var binary = flag.String("fairlead", "", "run this `binary` instead of building one")

// TestDocumentedCommands runs every command of the README and of docs, page
// by page and in the page's order, each page in a folder of its own.
func TestDocumentedCommands(t *testing.T) {
	leavesTheHostAlone(t)
	pages, err := script.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	scripts := t.TempDir()
	commands := 0
	for _, page := range pages {
		n, err := writeScript(scripts, page)
		if err != nil {
			t.Error(err)
		}
		commands += n
	}
	if commands == 0 {
		t.Fatal("the documentation holds no command: is the reader broken?")
	}
	run(t, testscript.Params{Dir: scripts})
}

// leavesTheHostAlone fails the test if a command has started a daemon of this
// host: it belongs among those that are run in a room (onHost).
func leavesTheHostAlone(t *testing.T) {
	t.Helper()
	// Daemons in other namespaces keep their locks beside it.
	stored := filepath.Join(service.RunDir, "boot.db")
	if _, err := os.Stat(stored); err == nil {
		return // it has one of its own
	}
	t.Cleanup(func() {
		if _, err := os.Stat(stored); err == nil {
			t.Errorf("a documented command has left %s on this host", stored)
		}
	})
}

// TestSessions runs the command-line sessions of testdata.
func TestSessions(t *testing.T) {
	run(t, testscript.Params{Dir: "testdata"})
}

// TestSessionRunnerFails proves that a command which fails fails its page.
func TestSessionRunnerFails(t *testing.T) {
	stub := filepath.Join(t.TempDir(), "fairlead")
	if err := os.WriteFile(stub, []byte("#!/bin/sh\ntest \"$1\" = ok || exit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for command, wantFail := range map[string]bool{"fairlead ok": false, "fairlead nonsense": true} {
		dir := t.TempDir()
		page := filepath.Join(dir, "page.md")
		if err := os.WriteFile(page, []byte("```console\n$ "+command+"\n```\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := writeScript(dir, page); err != nil {
			t.Fatal(err)
		}
		trial := &trial{}
		func() {
			defer trial.recoverStop()
			params := testscript.Params{Dir: dir, Setup: setup(stub)}
			testscript.RunT(trial, params)
		}()
		if trial.failed != wantFail {
			t.Errorf("%s: failed %v, want %v", command, trial.failed, wantFail)
		}
	}
}

func run(t *testing.T, params testscript.Params) {
	t.Helper()
	fairlead := *binary
	if fairlead == "" {
		fairlead = filepath.Join(t.TempDir(), "fairlead")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", fairlead, "./cmd/fairlead")
		build.Dir = root
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build fairlead: %v\n%s", err, out)
		}
	}
	params.Setup = setup(fairlead)
	params.Cmds = map[string]func(*testscript.TestScript, bool, []string){"exits": exits}
	testscript.Run(t, params)
}

// setup puts the binary and the tools of the system on a session's path.
func setup(fairlead string) func(*testscript.Env) error {
	return func(env *testscript.Env) error {
		bin := filepath.Join(env.WorkDir, ".bin")
		if err := os.Mkdir(bin, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(fairlead, filepath.Join(bin, "fairlead")); err != nil {
			return err
		}
		if err := openRoom(env, bin); err != nil {
			return err
		}
		// What the documentation declares.
		if err := os.CopyFS(env.WorkDir, os.DirFS(filepath.Join(root, "examples"))); err != nil {
			return err
		}
		env.Setenv("FAIRLEAD_LAB_SHARED", "1") // packages are tested beside each other
		env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		// `make lab` compiles, so it needs the caches that the test itself has.
		for _, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS", "GOSUMDB"} {
			out, err := exec.Command("go", "env", name).Output()
			if err != nil {
				return fmt.Errorf("go env %s: %w", name, err)
			}
			env.Setenv(name, strings.TrimSpace(string(out)))
		}
		return nil
	}
}

// exits is the session command `exits CODE COMMAND…`: the command must exit
// with exactly that code and say why on standard error. testscript's own
// `! exec` takes any failure for the right one.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("%s exited %d, want %d", strings.Join(args[1:], " "), code, want)
	}
	if want != 0 && strings.TrimSpace(ts.ReadFile("stderr")) == "" {
		ts.Fatalf("%s exited %d without a word on standard error", strings.Join(args[1:], " "), code)
	}
}

// writeScript writes a page's commands as a session into dir and returns how
// many there are.
func writeScript(dir, page string) (int, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return 0, err
	}
	name, err := filepath.Rel(root, page)
	if err != nil {
		return 0, err
	}
	commands, err := script.Commands(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if len(commands) == 0 {
		return 0, nil
	}
	var session strings.Builder
	for _, command := range commands {
		line, err := script.Runnable(command.Text, root)
		if command.Text == makeLab && name != firstPage {
			line, err = "make -n -C "+root+" lab", nil
		}
		if err != nil {
			return 0, fmt.Errorf("%s:%d: %w", name, command.Line, err)
		}
		fmt.Fprintf(&session, "# %s:%d\nexec timeout %.0f sh -c '%s'\n",
			name, command.Line, limit.Seconds(), strings.ReplaceAll(line, "'", "''"))
	}
	files, err := script.Files(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	for i, f := range files {
		if f.Written {
			files[i].Name += ".documented"
			fmt.Fprintf(&session, "cmp %s %s\n", f.Name, files[i].Name)
		}
	}
	for _, f := range files {
		fmt.Fprintf(&session, "-- %s --\n%s", f.Name, f.Text)
	}
	file := strings.NewReplacer("/", "-", "..", "").Replace(strings.TrimSuffix(name, ".md"))
	file = filepath.Join(dir, strings.TrimLeft(file, "-")+".txtar")
	return len(commands), os.WriteFile(file, []byte(session.String()), 0o644)
}

// makeLab does the same on every page, so that only the first one's is run; of
// the others' it is seen that there is such a target.
const (
	makeLab   = "make lab"
	firstPage = "README.md"
)

// limit bounds one documented command.
const limit = 10 * time.Minute

// trial is a testscript.T that remembers the outcome.
type trial struct{ failed bool }

type stop struct{}

func (t *trial) Skip(...any)                        { panic(stop{}) }
func (t *trial) Fatal(...any)                       { t.FailNow() }
func (t *trial) FailNow()                           { t.failed = true; panic(stop{}) }
func (t *trial) Parallel()                          {}
func (t *trial) Log(...any)                         {}
func (t *trial) Verbose() bool                      { return false }
func (t *trial) Run(_ string, f func(testscript.T)) { defer t.recoverStop(); f(t) }

func (t *trial) recoverStop() {
	if r := recover(); r != nil && r != any(stop{}) {
		panic(r)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
