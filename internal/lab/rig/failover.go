package rig

import (
	"context"
	"net/netip"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// A real server is reported as down after Fall consecutive failed checks, and as
// up after Rise successful ones.
const (
	Fall = 2
	Rise = 2
)

// Patience is the maximum time for each wait in a failover.
const Patience = 30 * time.Second

// Service is the name of the service under test.
const Service = "web"

// Victim is the real server that fails.
const Victim = "a"

// Balancing is implemented by makers whose path can have several real servers.
type Balancing interface {
	// Balance attaches the sandboxes of the real servers and starts the balancer.
	// The balancer is not nil if it must be closed, also after an error.
	Balance(ctx context.Context, t *Trial) (Balancer, error)
}

// Trial is a world in which real servers fail, for one run.
type Trial struct {
	World *topology.World
	Rig   *Rig
	// Names are the real servers, whose sandboxes exist.
	Names []string
	// Interval is the time between two checks of a real server.
	Interval time.Duration
}

// Balancer distributes a path's clients over its real servers.
type Balancer interface {
	// Target returns the address that clients dial.
	Target() netip.AddrPort
	// Reports returns the channel of its reports about real servers, nil if it makes
	// no checks. The channel is closed when the balancer ends; Log then returns the
	// reason.
	Reports() <-chan Report
	Log() string
	// Drain stops new connections to a server and waits until it has none; Enable
	// allows them again.
	Drain(ctx context.Context, server string) error
	Enable(ctx context.Context, server string) error
	Close() error
}

// Report is a balancer's report that a real server is up or down.
type Report struct {
	At     time.Time
	Server string
	Up     bool
}

// manyReports is how many unread reports are kept; later ones are lost.
const manyReports = 1000

// Reports are a balancer's reports that have not been read.
type Reports chan Report

// NewReports returns an empty channel of reports.
func NewReports() Reports { return make(Reports, manyReports) }

// Send sends a report without blocking; it drops the report if the channel is full.
func (r Reports) Send(report Report) {
	select {
	case r <- report:
	default:
	}
}

// Balance implements Balancing: a whole daemon balances if the path has a data
// plane. Otherwise clients dial the only real server.
func (e *Engine) Balance(ctx context.Context, t *Trial) (Balancer, error) {
	at := e.Addresses()
	if err := t.World.Route(at.Subnet); err != nil {
		return nil, err
	}
	if e.Path.Plane != "" {
		if err := t.World.Route(at.host(at.Virtual)); err != nil {
			return nil, err
		}
		return startDaemonBalancer(ctx, t)
	}
	return noBalancer{at.Reals[Victim]}, e.attachReals(ctx, t)
}

// attachReals attaches the sandboxes of the real servers to the path's network.
func (e *Engine) attachReals(ctx context.Context, t *Trial) error {
	n, err := e.network(serverNode)
	if err != nil {
		return err
	}
	s := model.State{Networks: []model.Network{n}}
	for _, name := range t.Names {
		box, err := t.World.Sandbox(name)
		if err != nil {
			return err
		}
		ep := model.Endpoint{Name: name, Network: Network, Sandbox: box,
			Addresses: []netip.Addr{e.Addresses().Reals[name]}}
		s.Endpoints = append(s.Endpoints, ep)
	}
	_, err = t.World.Engine.Set(ctx, s)
	return err
}

// noBalancer is used for a path with one real server, which clients dial.
type noBalancer struct{ real netip.Addr }

func (b noBalancer) Target() netip.AddrPort { return netip.AddrPortFrom(b.real, LoadPort) }

func (noBalancer) Reports() <-chan Report { return nil }

func (noBalancer) Log() string { return "there is no balancer" }

func (noBalancer) Drain(context.Context, string) error { return nil }

func (noBalancer) Enable(context.Context, string) error { return nil }

func (noBalancer) Close() error { return nil }
