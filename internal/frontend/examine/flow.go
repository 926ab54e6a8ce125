package examine

import (
	"context"
	"errors"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Flow explains a flow. If send is not nil, it also sends a packet, and notes at which hops it was seen.
func (x Examiner) Flow(ctx context.Context, f flow.Flow, send *probe.Options) (e flow.Explanation, err error) {
	host, err := kernel.Open("", kernel.Options{Pins: x.Pins})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	// Without an answer from the engine, containers have no names.
	containers, _ := sandbox.New().Containers(ctx)
	attachments, err := x.Daemon.Attachments(ctx)
	if err != nil && !admin.Gone(err) {
		return e, err
	}
	views, err := x.Daemon.Services(ctx)
	if err != nil && !admin.Gone(err) {
		return e, err
	}
	world, err := hostview.New(host, viewOptions(containers, attachments, known(views)))
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	e, err = flow.Explain(world.Facts(), f)
	if err == nil && e.Outcome == flow.Leaves {
		err = x.further(ctx, &e)
	}
	if err != nil || send == nil {
		return e, err
	}
	return e, probe.Send(ctx, world, &e, *send)
}

// further adds what the node of the cluster that has the destination reports. There is nothing to add
// without a daemon, a cluster, or such a node.
func (x Examiner) further(ctx context.Context, e *flow.Explanation) error {
	last := e.Hops[len(e.Hops)-1]
	part, err := admin.ExplainFlow.Do(ctx, x.Daemon, api.FlowQuestion{Proto: e.Proto,
		Source: last.Source, Destination: last.Destination})
	if admin.Gone(err) || api.CodeOf(err) == api.NotFound {
		return nil
	}
	if err == nil {
		e.Further = &part
	}
	return err
}

// viewOptions returns what the daemon and the engines know for the view of this host.
func viewOptions(containers []sandbox.Listed, attachments []api.View, balanced []flow.Known) hostview.Options {
	opt := hostview.Options{Sandboxes: map[string]string{}, Containers: map[string]string{}, Services: balanced,
		Finder: sandbox.New()}
	for _, c := range containers {
		opt.Containers[c.ID[:min(len(c.ID), shortID)]] = c.Name
	}
	for _, v := range attachments {
		opt.Sandboxes[v.Name] = v.Sandbox
		opt.Published = append(opt.Published, published(v)...)
	}
	return opt
}

// published returns the publishes of an attachment in the form of package flow.
func published(v api.View) []flow.Published {
	var all []flow.Published
	for _, p := range v.Publishes {
		all = append(all, flow.Published{Publish: p.Publish, Driver: v.Driver, Addresses: v.AllAddresses(),
			Away: v.NoDefault})
	}
	return all
}

// known converts virtual services for package flow.
func known(views []api.ServiceView) []flow.Known {
	all := make([]flow.Known, len(views))
	for i, v := range views {
		all[i] = flow.Known{Name: v.Name, Frontends: v.Frontends(), Status: string(v.Status), Problem: v.Problem,
			Routed: v.SourceNAT == model.SourceNATRouted}
		for _, s := range v.Servers {
			all[i].Reals = append(all[i].Reals, flow.Candidate{At: netip.AddrPortFrom(s.Address, s.Port),
				Endpoint: s.Endpoint, Weight: s.Weight, State: string(s.State), Cause: s.Cause})
		}
	}
	return all
}
