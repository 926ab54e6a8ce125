package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// failingWorld is a path with several real servers, for one run.
type failingWorld struct {
	*topology.World
	failing
	rig      *rig
	servers  map[string]*failover.Server
	balancer balancer
}

// reals are the real servers' names and addresses. Without a balancer there is
// only the first.
var reals = map[string]netip.Addr{
	victim: netip.MustParseAddr("172.30.0.11"),
	"b":    netip.MustParseAddr("172.30.0.12"),
	"c":    netip.MustParseAddr("172.30.0.13"),
}

// buildFailing builds the rig's path, and waits until all of its real servers
// answer.
func buildFailing(ctx context.Context, r *rig, f failing) (w *failingWorld, err error) {
	w = &failingWorld{failing: f, rig: r, servers: map[string]*failover.Server{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build path %s: %w", r.path.Name, err), w.close())
		}
	}()
	if w.World, err = topology.New(f.facts, r.options()); err != nil {
		return w, err
	}
	names := slices.Sorted(maps.Keys(reals))
	if !r.path.Balanced() {
		names = names[:1]
	}
	for _, name := range names {
		if _, err = w.Sandbox(name); err != nil {
			return w, err
		}
		if err = w.startServer(ctx, name); err != nil {
			return w, err
		}
	}
	if err = w.balance(ctx, names); err != nil {
		return w, err
	}
	for _, name := range names {
		if err = w.answers(ctx, name); err != nil {
			return w, err
		}
	}
	return w, nil
}

// balance attaches the sandboxes and starts the balancer.
func (w *failingWorld) balance(ctx context.Context, names []string) error {
	if err := w.Route(subnet); err != nil {
		return err
	}
	var err error
	if w.rig.path.Plane != "" {
		if err := w.Route(netip.PrefixFrom(virtual, virtual.BitLen())); err != nil {
			return err
		}
		w.balancer, err = startDaemonBalancer(ctx, w, names)
		return err
	}
	s := model.State{Networks: []model.Network{w.rig.network()}}
	for _, name := range names {
		box, err := w.Sandbox(name)
		if err != nil {
			return err
		}
		s.Endpoints = append(s.Endpoints, model.Endpoint{Name: name, Network: lab, Sandbox: box, Addresses: []netip.Addr{reals[name]}})
	}
	if _, err := w.Engine.Set(ctx, s); err != nil {
		return err
	}
	if w.rig.path.Peer == suite.HAProxy {
		w.balancer, err = startHAProxyBalancer(ctx, w, names)
		return err
	}
	w.balancer = noBalancer{}
	return nil
}

func (w *failingWorld) startServer(ctx context.Context, name string) (err error) {
	w.servers[name], err = failover.StartServer(ctx, name, LoadPort, w.rig.place(w.InSandbox(name), serverGroup))
	return err
}

// close ends everything; it continues after errors.
func (w *failingWorld) close() error {
	var errs []error
	if w.balancer != nil {
		errs = append(errs, w.balancer.close())
	}
	for _, s := range w.servers {
		if s != nil {
			s.Kill()
		}
	}
	if w.World != nil {
		errs = append(errs, w.World.Close())
	}
	return errors.Join(errs...)
}

// noBalancer is used for a path with one real server, which clients dial.
type noBalancer struct{}

func (noBalancer) target() netip.AddrPort { return netip.AddrPortFrom(reals[victim], LoadPort) }

func (noBalancer) words() <-chan word { return nil }

func (noBalancer) log() string { return "there is no balancer" }

func (noBalancer) drain(context.Context, string) error { return nil }

func (noBalancer) enable(context.Context, string) error { return nil }

func (noBalancer) close() error { return nil }
