package health

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"time"

	"fairlead/internal/cgroup"
	"fairlead/internal/child"
	"fairlead/internal/model"
)

// execCheck runs a command with the server's address and port as its last
// arguments, and passes if it exits with 0. When the command ends, all processes
// that it started are killed, so that checks cannot fill the host with processes.
type execCheck struct {
	command []string
	// group creates the cgroup of one run.
	group func() (*cgroup.Group, error)
}

// execType's checks do not overlap, because the effects of a command are unknown.
var execType = Type{Name: model.CheckExec, Settings: []string{"command"}, starts: true, checker: newExec}

func newExec(c model.Check, _ Means) (Checker, error) {
	return execCheck{c.Command, newCheckGroup}, nil
}

// drained is how long to wait for the output of a command that has ended: other
// processes may keep the output open.
const drained = 100 * time.Millisecond

// Check implements Checker.
func (e execCheck) Check(ctx context.Context, at Target) Result {
	said := &head{}
	args := append(append([]string{}, e.command[1:]...), at.Real.Addr().String(), strconv.Itoa(int(at.Real.Port())))
	cmd := exec.Command(e.command[0], args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, drained
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"FAIRLEAD_SERVICE=" + at.Service, "FAIRLEAD_ENDPOINT=" + at.Endpoint}
	processes := e.descendants()
	process, err := child.Start(context.WithoutCancel(ctx), cmd, processes.place(cmd))
	if err != nil {
		processes.end()
		r := failed("this host cannot check: %v", err)
		r.Void = true
		return r
	}
	stop := context.AfterFunc(ctx, func() { processes.kill(); _ = cmd.Process.Kill() })
	err = process.Wait()
	inTime := stop()
	processes.end()
	var exit *exec.ExitError
	switch {
	case !inTime:
		return failed("the command took too long: %s", said.first()).as(Timeout)
	case errors.As(err, &exit):
		return failed("%s: %s", exit, said.first()).as(CommandFailed)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // other processes kept the output open
		return failed("%v", err).as(CommandFailed)
	}
	return passed("exit status 0: %s", said.first())
}

// head keeps the first 1024 bytes of what is written to it.
type head struct{ text []byte }

// Write implements io.Writer. It never fails.
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
