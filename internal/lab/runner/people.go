package runner

import (
	"context"
	"net/netip"
	"slices"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// people starts the children that the suite's workloads take.
func (r *rig) people(ctx context.Context, s suite.Suite) (err error) {
	takes := func(start bool) bool {
		return slices.ContainsFunc(s.Workloads, func(w suite.Workload) bool { return r.path.Takes(w) && (w.Start != "") == start })
	}
	reached := slices.DeleteFunc(slices.Clone(s.Clients), func(c result.Client) bool { return !r.path.Reaches(c) })
	if takes(true) {
		for _, c := range reached {
			if r.askers[c], err = r.startAsker(ctx, c); err != nil {
				return err
			}
		}
	}
	if !takes(false) {
		return nil
	}
	if r.server, err = r.startServer(ctx); err != nil {
		return err
	}
	if _, err = r.server.Listen(ctx, netip.AddrPortFrom(netip.IPv4Unspecified(), r.listenPort())); err != nil {
		return err
	}
	for _, c := range reached {
		if r.clients[c], err = r.startClient(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) startServer(ctx context.Context) (*load.Server, error) {
	if r.dock != nil {
		return r.startInDocker(ctx)
	}
	return load.StartServer(ctx, r.serverPlace())
}

func (r *rig) startClient(ctx context.Context, c result.Client) (*load.Client, error) {
	if r.dock != nil && c == result.Peer {
		return r.neighborInDocker(ctx)
	}
	return load.StartClient(ctx, r.clientPlace(c))
}
