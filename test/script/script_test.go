package script_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"fairlead/internal/process"
	"fairlead/test/compiled"
	"fairlead/test/script"
)

// root is the project's folder, relative to this package's folder.
var root = must(filepath.Abs("../.."))

// binary replaces the built binary, to test the documentation with another version of fairlead.
var binary = flag.String("fairlead", "", "run this `binary` instead of building one")

// TestDocumentedCommands runs every command of the README and of docs, each page in a separate
// folder and in the page's order.
func TestDocumentedCommands(t *testing.T) {
	checkNoHostDaemon(t)
	pages, err := script.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	scripts, lab := t.TempDir(), newLaboratory()
	commands := 0
	for _, page := range pages {
		n, err := writeScript(scripts, page, lab)
		if err != nil {
			t.Error(err)
		}
		commands += n
	}
	if commands == 0 {
		t.Fatal("no command found in the documentation")
	}
	run(t, testscript.Params{Dir: scripts})
}

// checkNoHostDaemon fails the test if a command has started a daemon on this host. Such a command
// must run in a room (onHost).
func checkNoHostDaemon(t *testing.T) {
	t.Helper()
	// Daemons in other namespaces keep their locks beside this file.
	stored := filepath.Join(process.RunDir, "boot.db")
	if _, err := os.Stat(stored); err == nil {
		return // this host has its own daemon
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

// TestSessionRunnerFails checks that a command that fails makes its page fail.
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
		if _, err := writeScript(dir, page, newLaboratory()); err != nil {
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
		if err := compiled.Fairlead(fairlead); err != nil {
			t.Fatal(err)
		}
	}
	params.Setup = setup(fairlead)
	params.Cmds = map[string]func(*testscript.TestScript, bool, []string){"exits": exits}
	testscript.Run(t, params)
}

// setup adds the binary and the system's tools to a session's path.
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
		// The files to which the documentation refers.
		if err := os.CopyFS(env.WorkDir, os.DirFS(filepath.Join(root, "examples"))); err != nil {
			return err
		}
		env.Setenv("EDITOR", "true")           // documented commands edit nothing
		env.Setenv("FAIRLEAD_LAB_SHARED", "1") // several packages are tested at the same time
		env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		// `make lab` compiles, so it needs the test's own caches.
		caches, err := goCaches()
		if err != nil {
			return err
		}
		for name, value := range caches {
			env.Setenv(name, value)
		}
		return nil
	}
}

// goCaches returns the settings of the go command that name its caches and the sources of modules.
var goCaches = sync.OnceValues(func() (settings map[string]string, err error) {
	out, err := exec.Command("go", "env", "-json", "GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS",
		"GOSUMDB").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	return settings, json.Unmarshal(out, &settings)
})

// exits is the session command `exits CODE COMMAND…`: the command must exit with exactly that code
// and print a reason to standard error. testscript's own `! exec` accepts any failure.
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
		ts.Fatalf("%s exited %d without a message on standard error", strings.Join(args[1:], " "), code)
	}
}

// writeScript writes a page's commands as a session into dir and returns the number of commands. The
// laboratory's runs are shortened.
func writeScript(dir, page string, lab laboratory) (int, error) {
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
		fmt.Fprintf(&session, "# %s:%d\n", name, command.Line)
		shortened, err := lab.shorten(command.Text)
		if err != nil {
			return 0, fmt.Errorf("%s:%d: %w", name, command.Line, err)
		}
		for _, one := range shortened {
			line, err := script.Runnable(one, root)
			if one == makeLab && name != firstPage {
				line, err = "make -n -C "+root+" lab", nil
			}
			if err != nil {
				return 0, fmt.Errorf("%s:%d: %w", name, command.Line, err)
			}
			fmt.Fprintf(&session, "exec timeout %.0f sh -c '%s'\n", limit.Seconds(),
				strings.ReplaceAll(line, "'", "''"))
		}
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

// makeLab does the same on every page, so only the first page's is run. On other pages the test
// only checks that the target exists.
const (
	makeLab   = "make lab"
	firstPage = "README.md"
)

// limit is the time limit of one documented command.
const limit = 10 * time.Minute

// trial is a testscript.T that records the outcome.
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
