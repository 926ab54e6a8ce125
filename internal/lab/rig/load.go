package rig

import (
	"context"
	"net/netip"
	"slices"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// startLoad starts the children that the suite's workloads need.
func (r *Rig) startLoad(ctx context.Context, s suite.Suite) (err error) {
	reached := slices.DeleteFunc(slices.Clone(s.Clients), func(c result.Client) bool {
		return !r.Path.Reaches(c) || !r.hosts(c)
	})
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
	if r.part.HasServer() {
		if err = r.startListening(ctx); err != nil {
			return err
		}
	}
	for _, c := range reached {
		if r.Clients[c], err = r.startClient(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// startListening starts the generator's server.
func (r *Rig) startListening(ctx context.Context) (err error) {
	if r.Server, err = r.startServer(ctx); err != nil {
		return err
	}
	_, err = r.Server.Listen(ctx, netip.AddrPortFrom(r.Addresses().Unspecified, carrierOf(r.Path).listenPort()))
	return err
}

// hosts reports whether the client runs on a host of the rig's part.
func (r *Rig) hosts(c result.Client) bool {
	if c == result.Remote {
		return r.part.HasClient()
	}
	return r.part.HasServer()
}

// takes reports whether a workload of the suite that satisfies is goes through the
// path.
func (r *Rig) takes(s suite.Suite, is func(suite.Workload) bool) bool {
	return slices.ContainsFunc(s.Workloads, func(w suite.Workload) bool { return is(w) && r.Path.Supports(w) })
}

func (r *Rig) startServer(ctx context.Context) (*load.Server, error) {
	if m, ok := r.Maker.(Containers); ok {
		return m.StartServer(ctx, r)
	}
	return load.StartServer(ctx, r.ServerPlace())
}

func (r *Rig) startClient(ctx context.Context, c result.Client) (*load.Client, error) {
	if m, ok := r.Maker.(Containers); ok && c == result.Peer {
		return m.StartNeighbor(ctx, r)
	}
	return load.StartClient(ctx, r.ClientPlace(c))
}
