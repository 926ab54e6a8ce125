package tool

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// Serve starts the tool's server for a workload and a client in a rig, and waits until it listens. A
// proxy on the path accepts a client's connection earlier, and could then only reset
// it.
func (t Tool) Serve(ctx context.Context, r *rig.Rig, w suite.Workload, c result.Client) (*child.Process, error) {
	args := t.Server(w)
	path, err := program.Find(args[0])
	if err != nil {
		return nil, err
	}
	listening := program.Expect(t.Ready)
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdout, cmd.Stderr = listening, listening
	if t.Files != nil {
		files, err := t.Files(r.Path.Family)
		if err != nil {
			return nil, err
		}
		for _, content := range files {
			file, err := program.InMemory(content)
			if err != nil {
				return nil, err
			}
			defer file.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, file)
		}
	}
	at := r.ServerPlace(c)
	at.Contained = false // as process 1 of a PID namespace, some tools ignore signals
	p, err := child.Start(ctx, cmd, at)
	if err != nil {
		return nil, err
	}
	if t.Ready == "" {
		go listening.Watch(ctx, p, t.Silent)
	}
	select {
	case <-listening.Seen():
		return p, nil
	case <-p.Done():
		return nil, fmt.Errorf("start %s: it ended: %s", args[0], listening.Line())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// grace is how much longer than its window a tool may take.
const grace = 10 * time.Second

// Drive runs the tool's client for a number of seconds, and returns its output.
func (t Tool) Drive(ctx context.Context, r *rig.Rig, w suite.Workload, c result.Client, seconds int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+grace)
	defer cancel()
	args := t.Client(w, r.Dial(c, 0).Addr().String(), seconds)
	path, err := program.Find(args[0])
	if err != nil {
		return nil, err
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	at := r.ClientPlace(c)
	at.Contained = false
	p, err := child.Start(ctx, cmd, at)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(); err != nil {
		return out.Bytes(), fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes(), nil
}
