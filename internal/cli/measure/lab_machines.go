package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/agent"
	"fairlead/internal/lab/agent/overssh"
	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/runner"
)

// labMachines holds the flags of `lab run` that name other machines.
type labMachines struct{ server, client, ssh, link string }

// The environment variables with the tokens, which the list of processes does not
// show.
const (
	serverToken = "FAIRLEAD_LAB_SERVER_TOKEN"
	clientToken = "FAIRLEAD_LAB_CLIENT_TOKEN"
)

// take removes a machine from the values of --client, and returns the kinds of clients
// that are left. It sets the server's machine to that of --ssh.
func (m *labMachines) take(values []string) (clients []string, err error) {
	switch {
	case m.ssh != "" && m.server != "":
		return nil, fmt.Errorf("ssh %s: --ssh names the server's machine, and --server does too: use one of them", m.ssh)
	case m.ssh != "":
		m.server = overssh.Scheme + strings.TrimPrefix(m.ssh, overssh.Scheme)
	}
	for _, v := range values {
		switch {
		case slices.Contains(result.Clients, result.Client(v)):
			clients = append(clients, v)
		case !strings.ContainsAny(v, ".:=") && m.server == "":
			return nil, fmt.Errorf("there is no client %q: want %s, or a machine as HOST=TOKEN", v, oneOfClients())
		case m.client != "":
			return nil, fmt.Errorf("client %s: one machine has all clients across the wire, and %s is given too",
				hostOf(v), hostOf(m.client))
		default:
			m.client = v
		}
	}
	return clients, m.checkSSH()
}

// checkSSH returns an error for a machine whose text is invalid as one that is reached
// with ssh.
func (m *labMachines) checkSSH() error {
	for _, v := range []struct{ flag, text string }{{"server", m.server}, {"client", m.client}} {
		if !strings.HasPrefix(v.text, overssh.Scheme) {
			continue
		}
		if _, err := overssh.Parse(v.text); err != nil {
			return fmt.Errorf("%s %w", v.flag, err)
		}
	}
	return nil
}

// any reports whether another machine is used.
func (m *labMachines) any() bool { return m.server != "" || m.client != "" }

// connections are those of a session with other machines.
type connections struct {
	server, client *agent.Remote
	// started are the agents that were started with ssh.
	started []*overssh.Agent
	sweeper io.Closer
}

// Close ends the connections. The agents then remove everything; it waits for those
// that were started with ssh.
func (c *connections) Close() error {
	var errs []error
	for _, r := range []*agent.Remote{c.server, c.client} {
		if r != nil {
			r.Close()
		}
	}
	for _, s := range c.started {
		errs = append(errs, s.Close())
	}
	c.sweeper.Close()
	return errors.Join(errs...)
}

// end closes the connections after a session.
func (c *connections) end(a *command.App) {
	if err := c.Close(); err != nil {
		a.Err.Note("fairlead: %v", err)
	}
}

// watch returns a context that ends with ctx, or when a connection is lost. The
// function ends it.
func (c *connections) watch(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, r := range []*agent.Remote{c.server, c.client} {
		if r == nil {
			continue
		}
		go func() {
			<-r.Gone()
			cancel(fmt.Errorf("the connection to the agent at %s has ended: it was killed, or the link is lost", r.Address))
		}()
	}
	return ctx, cancel
}

// connect connects the machines and checks that they can be used together.
func (m *labMachines) connect(ctx context.Context, opt *runner.Options) (*connections, error) {
	sweeper, err := agent.StartSweeper()
	if err != nil {
		return nil, err
	}
	c := &connections{sweeper: sweeper}
	if err = m.open(ctx, c, opt); err == nil {
		err = m.check(ctx, c, opt)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open opens the connections.
func (m *labMachines) open(ctx context.Context, c *connections, opt *runner.Options) (err error) {
	if m.server != "" {
		c.server, err = c.connect(ctx, "server", m.server, serverToken, opt)
	}
	if err == nil && m.client != "" {
		c.client, err = c.connect(ctx, "client", m.client, clientToken, opt)
	}
	return err
}

// check describes the machines, and returns an error if nothing can be measured
// between them.
func (m *labMachines) check(ctx context.Context, c *connections, opt *runner.Options) error {
	if err := m.describe(ctx, c, opt); err != nil {
		return err
	}
	for _, described := range opt.Machines {
		if why := runner.Crowded(described); why != "" && !opt.Shared {
			return command.Usage(errors.New(why))
		}
	}
	err := runner.Probe(ctx, *opt)
	if errors.Is(err, runner.ErrBetween) {
		return command.Usage(err)
	}
	return err
}

// describe sets the machines of a session. One that is not given is this machine.
func (m *labMachines) describe(ctx context.Context, c *connections, opt *runner.Options) error {
	for _, v := range []struct {
		part          string
		remote, other *agent.Remote
		to            *machine.Machine
	}{{"server", c.server, c.client, &opt.Server}, {"client", c.client, c.server, &opt.Client}} {
		var described result.Machine
		var err error
		if v.remote != nil {
			*v.to = v.remote
			described, err = v.remote.Describe(ctx, opt.Suite.Paths, opt.Tools)
		} else {
			*v.to, described, err = m.this(v.other, *opt)
		}
		if err != nil {
			return command.Usage(err)
		}
		described.Part = v.part
		opt.Machines = append(opt.Machines, described)
	}
	return nil
}

// this returns this machine, connected with another one.
func (m *labMachines) this(other *agent.Remote, opt runner.Options) (machine.Machine, result.Machine, error) {
	local := &machine.Local{Facts: opt.Facts, Link: m.link}
	if local.Link == "" {
		var err error
		if local.Link, err = kernel.LinkTo(other.Addr()); err != nil {
			return nil, result.Machine{}, fmt.Errorf("find this machine's link to %s: %w: name the link with --link",
				other.Address, err)
		}
	}
	described, err := runner.Describe(local.Link, opt)
	return local, described, err
}

// connect connects the machine that a flag names as HOST, HOST:PORT, or with =TOKEN, or
// as overssh.Target.
func (c *connections) connect(ctx context.Context, flag, text, variable string, opt *runner.Options) (*agent.Remote,
	error) {
	at, token, err := c.reach(ctx, flag, text, variable)
	if err != nil {
		return nil, command.Usage(err)
	}
	r, err := agent.Connect(ctx, at, token, opt.Version, opt.Shared)
	if err != nil {
		return nil, command.Usage(err)
	}
	return r, nil
}

// reach returns the address and the token of an agent. It starts the agent if the
// machine is reached with ssh.
func (c *connections) reach(ctx context.Context, flag, text, variable string) (at string, t agent.Token, err error) {
	if strings.HasPrefix(text, overssh.Scheme) {
		target, err := overssh.Parse(text)
		if err != nil {
			return "", t, err
		}
		started, err := overssh.Start(ctx, target)
		if err != nil {
			return "", t, err
		}
		c.started = append(c.started, started)
		return started.Address, started.Token, nil
	}
	host, word, given := strings.Cut(text, "=")
	if !given {
		word = os.Getenv(variable)
	}
	if word == "" {
		return "", t, fmt.Errorf("%s %s: run `fairlead lab agent` there, and give the token that it prints: --%s %s=TOKEN, "+
			"or in the environment variable %s; or start it with --%s ssh://%s", flag, host, flag, host, variable, flag,
			host)
	}
	if t, err = agent.ParseToken(word); err != nil {
		return "", t, fmt.Errorf("token for %s %s: %w", flag, host, err)
	}
	return withPort(host), t, nil
}

// hostOf returns a machine without its token.
func hostOf(text string) string {
	host, _, _ := strings.Cut(text, "=")
	return host
}

// withPort adds the port of agents to a host without one.
func withPort(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(host, agentPort)
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), agentPort)
}
