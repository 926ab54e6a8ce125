package daemons

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/cli"
)

// CLIRole is the role of a process that runs fairlead as users do. CLI is its main function.
const CLIRole = "whole-cli"

// CLI runs fairlead with the arguments of the process.
func CLI() int { return cli.Main(cli.Build{Version: "devel"}, os.Args[1:], os.Stdout, os.Stderr) }

// Run runs a fairlead command against the daemon, on its host, and returns the command's output.
// The test fails if the command fails.
func (d *Daemon) Run(args ...string) string {
	d.t.Helper()
	said, err := d.Try(args...)
	if err != nil {
		d.t.Fatalf("fairlead %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return said
}

// Try is Run for a command that may fail. A command that does not end within five minutes is killed.
func (d *Daemon) Try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.t.Context()), endLimit)
	defer cancel()
	cmd := child.Self(CLIRole)
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = append(cmd.Env, "FAIRLEAD_SOCKET="+d.Socket)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	p, err := child.Start(ctx, cmd, d.at)
	if err == nil {
		err = p.Wait()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("the command has not ended after %v", endLimit)
	}
	return said.String(), err
}

// Begin starts a fairlead command against the daemon, on its host, and returns the lines of its output. The command
// is ended with the test.
func (d *Daemon) Begin(t testing.TB, args ...string) *bufio.Scanner {
	t.Helper()
	cmd := child.Self(CLIRole)
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = append(cmd.Env, "FAIRLEAD_SOCKET="+d.Socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	p, err := child.Start(context.WithoutCancel(t.Context()), cmd, d.at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = p.Wait()
	})
	return bufio.NewScanner(out)
}
