package health

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"fairlead/internal/child"
)

// execCheck runs a command with the server's address and port as its last
// arguments, and passes where it exits with 0. The command has a process group of
// its own, and what is left of that when it has ended is killed: a check that
// leaves a process behind would fill the host with them.
type execCheck struct{ command []string }

// drained is how long the output of a command is waited for that has ended, as
// others may hold it open.
const drained = 100 * time.Millisecond

// Check is Checker's.
func (e execCheck) Check(ctx context.Context, at Target) Result {
	said := &head{}
	args := append(append([]string{}, e.command[1:]...), at.Real.Addr().String(), strconv.Itoa(int(at.Real.Port())))
	cmd := exec.Command(e.command[0], args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, drained
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "FAIRLEAD_SERVICE=" + at.Service, "FAIRLEAD_ENDPOINT=" + at.Endpoint}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process, err := child.Start(context.WithoutCancel(ctx), cmd, child.Place{})
	if err != nil {
		r := failed("this host cannot check: %v", err)
		r.Void = true
		return r
	}
	// The group has the child's number, for as long as one of it lives; the child
	// may have gone to another.
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stop := context.AfterFunc(ctx, func() { end(); _ = cmd.Process.Kill() })
	err = process.Wait()
	inTime := stop()
	end() // numbers are not given again before all others have been
	var exit *exec.ExitError
	switch {
	case !inTime:
		return failed("the command took too long: %s", said.first()).as(Timeout)
	case errors.As(err, &exit):
		return failed("%s: %s", exit, said.first()).as(CommandFailed)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // others had its output open
		return failed("%v", err).as(CommandFailed)
	}
	return passed("exit status 0: %s", said.first())
}

// head keeps the beginning of what is written to it.
type head struct{ text []byte }

// Write is io.Writer's; it takes everything.
func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), 1024-len(h.text))]...)
	return len(p), nil
}

// first returns the first line.
func (h *head) first() string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(h.text), []byte("\n"))
	if len(line) == 0 {
		return "no output"
	}
	return string(line)
}
