// Package examine reads this host and asks its daemon for what explains both: the owners of
// ports, and the paths of flows. Commands and the dashboard use it. It changes nothing.
package examine

import (
	"context"
	"errors"
	"os"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"
)

// shortID is the number of characters that identify a container.
const shortID = 12

// Examiner reads this host. It is safe for concurrent use.
type Examiner struct {
	// Daemon is asked for what the daemon knows.
	Daemon *admin.Client
	// Pins is the directory of the daemon's eBPF programs (process.Pins).
	Pins string
	// Stored returns the attachments that the last daemon has stored. It is called if no daemon runs. Nil
	// returns none.
	Stored func() ([]api.View, error)
}

// Host reads what ports and doctor need. Without a daemon, the attachments are
// those that the last one has stored.
func (x Examiner) Host(ctx context.Context) (h doctor.Host, err error) {
	host, err := kernel.Open("", kernel.Options{Pins: x.Pins})
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if h.Facts, err = facts.Gather(ctx, host, sandbox.New()); err != nil {
		return h, err
	}
	asked := x.ask(ctx, &h)
	if admin.Gone(asked) && x.Stored != nil && os.Geteuid() == 0 {
		var stored error
		if h.Attachments, stored = x.Stored(); errors.As(stored,
			new(*store.InUseError)) { // a daemon has started meanwhile
			asked = x.ask(ctx, &h)
		}
		if admin.Gone(asked) && stored != nil {
			h.Unseen = append(h.Unseen, "the stored state: "+stored.Error())
		}
	}
	if h.Daemon = !admin.Gone(asked); h.Daemon && asked != nil {
		h.Unseen = append(h.Unseen, "the daemon's state: "+asked.Error())
	}
	if os.Geteuid() != 0 {
		h.Ports = ports.List(h.Facts, h.Attachments, h.Balanced)
		return h, nil
	}
	return h, listAsked(host, &h)
}

// listAsked lists the ports, and follows a flow from each place to each port.
func listAsked(host *kernel.Host, h *doctor.Host) (err error) {
	world, err := hostview.New(host, viewOptions(h.Containers, h.Attachments, known(h.Balanced)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	h.Ports = ports.ListAsked(h.Facts, h.Attachments, h.Balanced,
		func(f flow.Flow) (flow.Explanation, error) { return flow.Explain(world.Facts(), f) })
	return nil
}

// ask asks the daemon for what it knows.
func (x Examiner) ask(ctx context.Context, h *doctor.Host) (err error) {
	if h.Attachments, err = x.Daemon.Attachments(ctx); err != nil {
		return err
	}
	networks, err := admin.ListNetworks.Do(ctx, x.Daemon)
	if err != nil {
		return err
	}
	h.Unavailable = networks.Unavailable
	if h.Events, err = x.Daemon.Events(ctx); err != nil {
		return err
	}
	if h.Balanced, err = x.Daemon.Services(ctx); err != nil {
		return err
	}
	h.Now = time.Now()
	status, err := admin.ShowCluster.Do(ctx, x.Daemon)
	if err == nil {
		h.Cluster = &status
	}
	if api.CodeOf(err) == api.NotFound { // the host belongs to no cluster
		return nil
	}
	return err
}

// Kernel returns what this kernel has.
func (x Examiner) Kernel(context.Context) (plan.Facts, error) { return kernel.Probe() }
