package overssh

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/agent"
)

const (
	// startLimit is how long ssh, the copy and the agent's start may take.
	startLimit = 200 * time.Second
	// endLimit is how long the agent may take to remove what it has built.
	endLimit = 20 * time.Second
	// maxOutput limits what is read before the token: other programs of a login may
	// write too.
	maxOutput = 64 << 10
)

// Agent is an agent that was started with ssh.
type Agent struct {
	// Address is the agent's, with port, and Token admits one laboratory.
	Address string
	Token   agent.Token

	ssh *child.Process
	// in is the standard input of ssh, and so the agent's.
	in *os.File
}

// Start copies this binary to a machine and starts an agent there. The agent ends when
// it is closed, or with this process. The error has what ssh and the machine reported.
func Start(ctx context.Context, t Target) (*Agent, error) {
	text := &tail{}
	a, err := start(ctx, t, text)
	if err == nil {
		return a, nil
	}
	if reported := text.String(); reported != "" {
		err = fmt.Errorf("%w: %s", err, reported)
	}
	return nil, fmt.Errorf("start an agent on %s: %w", t, err)
}

func start(ctx context.Context, t Target, text *tail) (*Agent, error) {
	if _, err := exec.LookPath("ssh"); err != nil {
		return nil, fmt.Errorf("%w: install OpenSSH's client", err)
	}
	binary, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	a, out, err := launch(t, text)
	if err != nil {
		return nil, errors.Join(err, binary.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = a.ssh.Kill() })()
	go func() {
		defer binary.Close()
		_ = send(a.in, binary, t.Link) // the other side reports what it did not receive
	}()
	err = a.receive(out)
	out.Close()
	if err == nil {
		return a, nil
	}
	err = errors.Join(err, a.Close())
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if status, ok := errors.AsType[*exec.ExitError](a.ssh.Wait()); ok && status.ExitCode() == sshFailed {
		err = fmt.Errorf("ssh cannot log in: check that `ssh %s true` works without a password", t)
	}
	return nil, err
}

// sshFailed is the exit status of ssh(1) for its own errors.
const sshFailed = 255

// launch starts ssh, and returns its standard output.
func launch(t Target, text *tail) (a *Agent, out *os.File, err error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	defer theirOut.Close()
	cmd := exec.Command("ssh", t.arguments()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, text
	cmd.WaitDelay = time.Second // other processes of the user's configuration may keep it open
	p, err := child.Start(context.Background(), cmd, child.Place{})
	if err != nil {
		return nil, nil, errors.Join(err, in.Close(), out.Close())
	}
	return &Agent{ssh: p, in: in}, out, nil
}

// send sends what the script reads.
func send(to io.Writer, binary *os.File, link string) error {
	info, err := binary.Stat()
	if err == nil {
		_, err = fmt.Fprintf(to, "%d %s\n", info.Size(), link)
	}
	if err == nil {
		_, err = io.Copy(to, binary)
	}
	return err
}

// receive reads the agent's address and token. Other lines are ignored.
func (a *Agent) receive(from io.Reader) error {
	for lines := bufio.NewScanner(io.LimitReader(from, maxOutput)); lines.Scan(); {
		var issued agent.IssuedToken
		if json.Unmarshal(lines.Bytes(), &issued) != nil || issued.Token == "" {
			continue
		}
		var err error
		if a.Token, err = agent.ParseToken(issued.Token); err == nil {
			_, err = netip.ParseAddrPort(issued.Listen)
		}
		a.Address = issued.Listen
		return err
	}
	return errors.New("the agent ended before it printed its address and token")
}

// Close ends the agent, and waits until it has removed everything.
func (a *Agent) Close() error {
	a.in.Close()
	select {
	case <-a.ssh.Done():
		return nil
	case <-time.After(endLimit):
		return errors.Join(errors.New("the agent has not ended: ssh is killed"), a.ssh.Kill())
	}
}
