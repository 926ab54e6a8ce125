package runner

import (
	"context"
	"net/netip"
	"slices"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// startLoad starts the children that the suite's workloads need.
func (r *rig) startLoad(ctx context.Context, s suite.Suite) (err error) {
	reached := slices.DeleteFunc(slices.Clone(s.Clients), func(c result.Client) bool { return !r.path.Reaches(c) })
	if r.takes(s, func(w suite.Workload) bool { return w.Start != "" }) {
		for _, c := range reached {
			if r.askers[c], err = r.startAsker(ctx, c); err != nil {
				return err
			}
		}
	}
	if !r.takes(s, suite.Workload.Generated) {
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

// takes reports whether a workload of the suite that satisfies is goes through the
// path.
func (r *rig) takes(s suite.Suite, is func(suite.Workload) bool) bool {
	return slices.ContainsFunc(s.Workloads, func(w suite.Workload) bool { return is(w) && r.path.Supports(w) })
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
