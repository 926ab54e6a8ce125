package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/topology"
)

// failingWorld is a path with several real servers, for one run.
type failingWorld struct {
	*topology.World
	failing
	rig      *rig.Rig
	servers  map[string]*failover.Server
	balancer rig.Balancer
}

// buildFailing builds the rig's path, and waits until all of its real servers
// answer.
func buildFailing(ctx context.Context, r *rig.Rig, f failing) (w *failingWorld, err error) {
	w = &failingWorld{failing: f, rig: r, servers: map[string]*failover.Server{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build path %s: %w", r.Path.Name, err), w.close())
		}
	}()
	if w.World, err = topology.New(f.facts, r.Options()); err != nil {
		return w, err
	}
	names := slices.Sorted(maps.Keys(w.rig.Addresses().Reals))
	if !r.Path.Balanced() {
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
	if err = w.rig.SetConditions(w.World); err != nil {
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
func (w *failingWorld) balance(ctx context.Context, names []string) (err error) {
	m, ok := w.rig.Maker.(rig.Balancing)
	if !ok {
		return errors.New("the path can have only one real server")
	}
	w.balancer, err = m.Balance(ctx, &rig.Trial{World: w.World, Rig: w.rig, Names: names, Interval: w.interval})
	return err
}

func (w *failingWorld) startServer(ctx context.Context, name string) (err error) {
	w.servers[name], err = failover.StartServer(ctx, name, rig.LoadPort,
		w.rig.Place(w.InSandbox(name), rig.ServerGroup))
	return err
}

// close ends everything; it continues after errors.
func (w *failingWorld) close() error {
	var errs []error
	if w.balancer != nil {
		errs = append(errs, w.balancer.Close())
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
