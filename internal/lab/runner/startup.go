package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/startup"
	"fairlead/internal/lab/stats"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// firstStartPort is the first port that a container publishes when its start is
// measured.
const firstStartPort = 20_000

// starting measures a container's start.
type starting struct{ suite.Workload }

func (s starting) name() (workload, tool string) { return s.Name, result.OwnTool }

func (s starting) what() suite.Workload { return s.Workload }

// run starts a container with `docker run --rm`, and waits until it has answered
// on the last of its ports and has then ended.
func (s starting) run(ctx context.Context, r *rig, c result.Client) result.Run {
	run := result.Run{Case: result.Case{Path: r.path.Name, Client: c, Workload: s.Name, Tool: result.OwnTool}}
	window, err := ledger.Begin(r.groups.Parties())
	if err != nil {
		return invalid(run, err)
	}
	b := &beginning{rig: r, client: c, proto: s.Start, answer: fmt.Sprintf("%016x", rand.Uint64())}
	err = b.start(ctx)
	l, gates, e := window.End()
	if err = errors.Join(err, e); err != nil {
		return invalid(run, errors.Join(err, b.end()))
	}
	run.Ledger, run.Seconds = &l, b.answered.Seconds()
	memory, err := r.memory()
	if err = errors.Join(err, b.end()); err != nil {
		return invalid(run, err)
	}
	run.Metrics = map[result.Metric]float64{
		result.StartTime: b.answered.Seconds(), result.RunTime: b.ended.Seconds(),
		result.Memory: memory.all, result.PublishMemory: memory.publish, result.CPUPerOp: l.Busy - l.Steal,
	}
	stats.Derive(&run)
	run.Proof = r.proveStart(memory)
	disturbed(&run, gates)
	if !run.Proof.OK {
		run.Invalid = append(run.Invalid, "the traffic did not take the path: "+missed(run.Proof))
	}
	return run
}

// beginning is one container from start to end.
type beginning struct {
	rig       *rig
	client    result.Client
	proto     model.Proto
	answer    string
	container *container
	// answered and ended are the times since `docker run` was started. ended
	// excludes the time for readings in between.
	answered, ended time.Duration
}

// start starts the container and waits for its answer.
func (b *beginning) start(ctx context.Context) error {
	last := firstStartPort + b.rig.path.Ports - 1
	flags := append(networkArgs(b.rig.path, b.rig.starter()), b.ports(last)...)
	flags = append(flags, "--env", fmt.Sprintf("%s=%s:%d", startup.Listen, b.proto, last), "--env", startup.Answer+"="+b.answer)
	began := time.Now()
	var err error
	if b.container, err = b.rig.runContainer(ctx, "start", startup.AnswerRole, startup.Control, flags...); err != nil {
		return err
	}
	err = b.rig.ask(b.client, string(b.proto), netip.AddrPortFrom(b.target(), uint16(last)), b.answer)
	b.answered = time.Since(began)
	return err
}

// ports returns the arguments that publish the path's number of ports.
func (b *beginning) ports(last int) []string {
	if b.rig.path.Direct || b.rig.path.Driver == model.DriverHost {
		return nil
	}
	ports := fmt.Sprintf("%d-%d", firstStartPort, last)
	return []string{"--publish", ports + ":" + ports + "/" + string(b.proto)}
}

// target is the address to which the client sends.
func (b *beginning) target() netip.Addr {
	if b.rig.path.Direct {
		return b.rig.starter()
	}
	return topology.ServerAddr4
}

// end makes the container end and waits until docker reports it.
func (b *beginning) end() error {
	if b.container == nil {
		return nil
	}
	began := time.Now()
	b.container.control.Close()
	err := b.container.Wait()
	b.ended = b.answered + time.Since(began)
	return err
}

// starter is the address of a container whose start is measured.
func (r *rig) starter() netip.Addr {
	if r.path.Driver == model.DriverMacvlan {
		return wireStarter
	}
	return starter
}

// asker is a child that sends requests as a client.
type asker struct {
	child *child.Process
	in    io.WriteCloser
	out   *bufio.Reader
}

// startAsker starts a client's asker, which serves every start.
func (r *rig) startAsker(ctx context.Context, c result.Client) (*asker, error) {
	cmd := child.Self(startup.AskRole)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := child.Start(ctx, cmd, r.askerPlace(c))
	return &asker{child: p, in: in, out: bufio.NewReader(out)}, err
}

// askerPlace is the client's place, except for a client in another container: that
// one is on the host, because the client does not matter for a container's start.
func (r *rig) askerPlace(c result.Client) child.Place {
	if c == result.Remote {
		return r.place(r.world.Client(), clientGroup)
	}
	return r.place(r.world.Server(), clientGroup)
}

// ask makes the client ask until it gets the answer.
func (r *rig) ask(c result.Client, proto string, addr netip.AddrPort, answer string) error {
	a := r.askers[c]
	if _, err := io.WriteString(a.in, startup.Question(proto, addr.String(), answer)); err != nil {
		return fmt.Errorf("ask the container: %w", err)
	}
	reply, err := a.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("ask the container: %w", err)
	}
	if reply != startup.Answered {
		return fmt.Errorf("ask the container: %s", strings.TrimSpace(reply))
	}
	return nil
}
