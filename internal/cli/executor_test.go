package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/cli/command"
)

// The roles of a process that executes command lines, one after the other: as root, and without rights.
const (
	commandRole      = "command"
	unprivilegedRole = "unprivileged"
)

// noRights is the id of a user and a group without rights.
const noRights = 65534

func unprivileged() int {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(noRights), syscall.Setuid(noRights)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return commandProcess()
}

// The file descriptors of a process that executes command lines. A command that replaces the program closes them.
const (
	fdLines = 3 + iota
	fdCodes
)

// commandProcess reads the arguments of command lines, executes each, and writes its exit status. If it has arguments, it
// executes only these: a command has started it.
func commandProcess() int {
	if len(os.Args) > 1 {
		return Main(Build{Version: "test"}, os.Args[1:], os.Stdout, os.Stderr)
	}
	syscall.CloseOnExec(fdLines)
	syscall.CloseOnExec(fdCodes)
	lines, codes := json.NewDecoder(os.NewFile(fdLines, "lines")), json.NewEncoder(os.NewFile(fdCodes, "codes"))
	for {
		var args []string
		if lines.Decode(&args) != nil {
			return 0
		}
		if err := codes.Encode(Main(Build{Version: "test"}, args, os.Stdout, os.Stderr)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

// leaving are the commands after which no other one is executed in the same process: they change its umask, its default
// logger or its signal handlers, or replace its program.
var leaving = []string{"daemon", "exec", "gateway traefik", "run", "uninstall"}

// isLeaving reports whether the command of the arguments is one of leaving.
func isLeaving(args []string) bool {
	line := strings.Join(args, " ") + " "
	return slices.ContainsFunc(leaving, func(name string) bool { return strings.HasPrefix(line, name+" ") })
}

// surroundings are where commands run.
type surroundings struct {
	name, role, socket string
	// enter are nsenter's arguments.
	enter []string
	env   []string
	idle  chan *executor
}

// newSurroundings returns surroundings with the environment variables env. Its processes end with the test.
func newSurroundings(t *testing.T, name, role, socket string, enter []string, env ...string) surroundings {
	s := surroundings{name, role, socket, enter, slices.Concat(os.Environ(), []string{child.Role + "=" + role,
		command.SocketVariable + "=" + socket, "VISUAL="}, env), make(chan *executor, slots)}
	t.Cleanup(func() {
		for len(s.idle) > 0 {
			(<-s.idle).end()
		}
	})
	return s
}

// ran is the result of a command.
type ran struct {
	code     int
	out, err string
}

// run executes a command in an idle process, or in a new one if there is none. If the command ends its process although
// it should return a status, the test fails.
func (s surroundings) run(t *testing.T, args []string) ran {
	t.Helper()
	var p *executor
	select {
	case p = <-s.idle:
	default:
		p = s.start(t)
	}
	if p == nil {
		return ran{}
	}
	r, stays, err := p.run(args)
	switch {
	case err != nil:
		t.Errorf("%s: fairlead %q does not end: %v\n%s", s.name, args, err, r.err)
	case !stays && args[0] != "exec":
		t.Errorf("%s: fairlead %q ends its process with %d:\n%s", s.name, args, r.code, r.err)
	case stays && isLeaving(args):
		p.end()
	case stays:
		s.idle <- p
	}
	return r
}

// executor is a process that executes command lines. What the commands write is in the files out and err.
type executor struct {
	cmd      *exec.Cmd
	lines    *os.File
	codes    *json.Decoder
	out, err *os.File
}

// start starts a process.
func (s surroundings) start(t *testing.T) *executor {
	dir := t.TempDir()
	self, err := os.Executable()
	out, outErr := os.OpenFile(filepath.Join(dir, "out"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	errs, errsErr := os.OpenFile(filepath.Join(dir, "err"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	read, lines, linesErr := os.Pipe()
	codes, ended, codesErr := os.Pipe()
	if err := errors.Join(err, outErr, errsErr, linesErr, codesErr); err != nil {
		t.Error(err)
		return nil
	}
	defer read.Close()
	defer ended.Close()
	t.Cleanup(func() { _, _, _, _ = lines.Close(), codes.Close(), out.Close(), errs.Close() })
	cmd := exec.Command("nsenter", append(slices.Clone(s.enter), self)...)
	cmd.Env, cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = s.env, []*os.File{read, ended}, out, errs
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	return &executor{cmd, lines, json.NewDecoder(codes), out, errs}
}

// run executes a command, and reports whether the process continues. The error says that the command did not end in a
// minute.
func (p *executor) run(args []string) (r ran, stays bool, err error) {
	limit := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	_ = json.NewEncoder(p.lines).Encode(args) // if the process has ended, so have its statuses
	stays = p.codes.Decode(&r.code) == nil
	if !stays {
		_ = p.cmd.Wait()
		r.code = p.cmd.ProcessState.ExitCode()
	}
	if !limit.Stop() {
		err = errors.New("it was killed after a minute")
	}
	r.out, err = written(p.out, err)
	r.err, err = written(p.err, err)
	return r, stays, err
}

// written empties a file and returns what it contained. Returns also err and its own error.
func written(f *os.File, err error) (string, error) {
	text, readErr := os.ReadFile(f.Name())
	return string(text), errors.Join(err, readErr, f.Truncate(0))
}

// end ends the process.
func (p *executor) end() {
	p.lines.Close()
	_ = p.cmd.Wait()
}
