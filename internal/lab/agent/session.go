package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/runner"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/tool"
	"fairlead/internal/lab/topology"
	"fairlead/internal/plan"

	"github.com/xtaci/smux"
)

// maxParts limits the parts that exist at the same time.
const maxParts = 64

// session is one laboratory at an agent.
type session struct {
	agent  *Agent
	mux    *smux.Session
	local  *machine.Local
	shared bool
	locked []io.Closer

	// mu is held during a call: they are carried out one after the other.
	mu    sync.Mutex
	parts map[int]*sessionPart
	made  int
}

// sessionPart is a part with what the laboratory learns of it.
type sessionPart struct {
	machine.Part
	server  bool
	clients []result.Client
	// relayed has the generators that a stream was opened for.
	relayed map[result.Client]bool
}

// open takes the machine for one laboratory.
func (a *Agent) open(conn *tls.Conn, shared bool) (s *session, met []int, err error) {
	s = &session{agent: a, parts: map[int]*sessionPart{}, local: &machine.Local{Link: a.Link},
		shared: shared}
	lock, met, err := runner.Alone(shared)
	if err != nil {
		return nil, nil, err
	}
	s.locked = append(s.locked, lock)
	if awake, _ := runner.KeepAwake(); awake != nil {
		s.locked = append(s.locked, awake)
	}
	if _, err = runner.Admit(suite.Suite{}); err == nil {
		s.mux, err = smux.Server(conn, streams())
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	return s, met, nil
}

// run carries out calls until the connection or ctx ends. Then it removes everything.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { s.mux.Close() })()
	open := make(chan struct{}, maxStreams)
	var all sync.WaitGroup
	for {
		stream, err := s.mux.AcceptStream()
		if err != nil {
			break
		}
		select {
		case open <- struct{}{}:
			all.Go(func() {
				defer func() { <-open }()
				defer stream.Close()
				s.answer(ctx, stream)
			})
		default:
			stream.Close()
		}
	}
	cancel()
	err := s.close()
	all.Wait()
	return err
}

// close removes the parts. Calls that are under way end first.
func (s *session) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.mux != nil {
		s.mux.Close()
	}
	for _, p := range s.parts {
		errs = append(errs, p.Close())
	}
	s.parts = nil
	for _, c := range slices.Backward(s.locked) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// answer carries out the call of a stream.
func (s *session) answer(ctx context.Context, stream net.Conn) {
	var c call
	if err := receive(stream, maxMessage, &c); err != nil {
		return
	}
	var r reply
	var relay func(net.Conn) error
	err := s.locking(func() (err error) {
		if c.Do == doLoad {
			relay, err = s.load(c)
			return err
		}
		r, err = s.do(ctx, c)
		return err
	})
	if err != nil {
		r.Error = err.Error()
	}
	if send(stream, r) == nil && relay != nil {
		_ = relay(stream) // the laboratory sees the same error
	}
}

func (s *session) locking(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts == nil {
		return errors.New("the laboratory has ended")
	}
	return do()
}

func (s *session) do(ctx context.Context, c call) (r reply, err error) {
	switch c.Do {
	case doDescribe:
		return s.describe(c)
	case doUnavailable:
		r.Why, err = s.local.Unavailable(ctx, c.Path, c.Family)
		return r, err
	case doBuild:
		return s.build(ctx, c.Order)
	}
	p, err := s.part(c.Part)
	if err != nil {
		return r, err
	}
	switch c.Do {
	case doPrepare:
		err = p.Prepare(ctx, c.Client)
	case doBegin:
		err = p.Begin(ctx, c.Client)
	case doEnd:
		r.Ledger, r.Gates, err = p.End(ctx)
	case doMemory:
		r.Memory, err = p.Memory(ctx)
	case doServe:
		err = p.Serve(ctx, c.Client, c.Tool, c.Workload)
	case doEndServe:
		err = p.EndServe(ctx)
	case doDrive:
		r.Output, err = p.Drive(ctx, c.Client, c.Tool, c.Workload, c.Seconds)
	case doProve:
		r.Proof, err = p.Prove(ctx, c.Traffic)
	case doClose:
		delete(s.parts, c.Part)
		err = p.Close()
	default:
		return s.visit(ctx, p, c)
	}
	return r, err
}

// visit carries out the calls for web sites.
func (s *session) visit(ctx context.Context, p *sessionPart, c call) (r reply, err error) {
	sites, ok := p.Part.(machine.Sites)
	switch {
	case ok && c.Do == doOpenSite:
		r.Site, err = sites.OpenSite(ctx, c.Workload)
	case ok && c.Do == doCountSite:
		r.Counters, err = sites.CountSite(ctx)
	case ok && c.Do == doCloseSite:
		err = sites.CloseSite(ctx)
	case ok && c.Do == doVisit:
		r.Visits, err = sites.Visit(ctx, c.Visits)
	default:
		err = fmt.Errorf("the agent has no call %q", c.Do)
	}
	return r, err
}

// describe describes the machine. The reply has a reason if a tool is missing.
func (s *session) describe(c call) (r reply, err error) {
	for _, name := range c.Tools {
		if !slices.Contains(tool.Names(), name) {
			return r, fmt.Errorf("there is no tool %q", name)
		}
		if err := tool.Missing(name); err != nil {
			r.Why = err.Error()
		}
	}
	paths := known(c.Paths)
	if s.local.Facts, err = s.agent.Probe(features(paths)); err != nil {
		return r, err
	}
	r.Machine, err = runner.Describe(s.agent.Link, runner.Options{Facts: s.local.Facts, Version: s.agent.Version,
		Suite: suite.Suite{Paths: paths}, Tools: c.Tools})
	return r, err
}

// features returns the kernel features that paths may use.
func features(paths []string) (needed []plan.Feature) {
	for _, name := range paths {
		p, _ := suite.FindPath(name)
		needed = append(needed, rig.Features(p)...)
	}
	return needed
}

// known returns the paths that this version has.
func known(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(name string) bool {
		_, ok := suite.FindPath(name)
		return !ok
	})
}

func (s *session) part(id int) (*sessionPart, error) {
	p := s.parts[id]
	if p == nil {
		return nil, fmt.Errorf("there is no part %d", id)
	}
	return p, nil
}

// build builds a part. An agent never has both hosts of a path: without a wire to
// another machine, a laboratory needs no agent.
func (s *session) build(ctx context.Context, o machine.Order) (r reply, err error) {
	if err := s.check(o); err != nil {
		return r, fmt.Errorf("build path %q: %w", o.Path, err)
	}
	built, err := s.local.Build(ctx, o)
	if err != nil {
		return r, err
	}
	s.made++
	p := &sessionPart{Part: built, server: built.Server() != nil, relayed: map[result.Client]bool{}}
	for _, c := range clients {
		if built.Client(c) != nil {
			p.clients = append(p.clients, c)
		}
	}
	s.parts[s.made] = p
	return reply{Part: s.made, Server: p.server, Clients: p.clients, FlowAddrs: built.FlowAddrs()}, nil
}

// check returns an error for an order that a laboratory of this version does not send.
func (s *session) check(o machine.Order) error {
	p, ok := suite.FindPath(o.Path)
	_, familyErr := o.Family.Normal()
	switch {
	case !ok:
		return errors.New("there is no such path")
	case p.Undivided() != "":
		return errors.New(p.Undivided())
	case familyErr != nil:
		return familyErr
	case o.Netem.Check() != nil:
		return o.Netem.Check()
	case o.Part != topology.ServerPart && o.Part != topology.ClientPart:
		return fmt.Errorf("there is no part %q", o.Part)
	case slices.ContainsFunc(o.Clients, func(c result.Client) bool { return !slices.Contains(clients, c) }) ||
		len(o.Clients) > len(clients):
		return fmt.Errorf("the clients %q are not some of %q", o.Clients, clients)
	case len(s.parts) >= maxParts:
		return fmt.Errorf("%d paths exist already, and an agent builds at most %d", len(s.parts), maxParts)
	case !topology.OfWire(o.Uplink.MAC) || !topology.OfWire(o.Uplink.Peer):
		return errors.New("the addresses of the wire can be those of other hosts")
	}
	return nil
}

// clients are all of them.
var clients = []result.Client{result.Remote, result.Local, result.Peer}

// load returns what passes the messages of a generator on. Each generator has one
// stream.
func (s *session) load(c call) (func(net.Conn) error, error) {
	p, err := s.part(c.Part)
	if err != nil {
		return nil, err
	}
	key := c.Client
	if c.Server {
		key = ""
	}
	switch {
	case p.relayed[key]:
		return nil, errors.New("the generator has a stream already")
	case c.Server && p.Server() != nil:
		p.relayed[key] = true
		return p.Server().Relay, nil
	case !c.Server && p.Client(key) != nil:
		p.relayed[key] = true
		return p.Client(key).Relay, nil
	}
	return nil, errors.New("the part has no such generator")
}
