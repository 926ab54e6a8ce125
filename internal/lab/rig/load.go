package rig

import (
	"context"
	"net/netip"
	"slices"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
)

// startLoad starts the children that the suite's workloads need.
func (r *Rig) startLoad(ctx context.Context, s suite.Suite) (err error) {
	if r.takes(s, func(w suite.Workload) bool { return w.Start != "" }) {
		for _, c := range r.wanted {
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
	for _, c := range r.wanted {
		if r.Clients[c], err = r.startClient(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// startListening starts the generator's server, and the one on the client host.
func (r *Rig) startListening(ctx context.Context) (err error) {
	if r.Wants(result.Outbound) {
		if r.Outside, err = load.StartServer(ctx, r.ServerPlace(result.Outbound)); err != nil {
			return err
		}
		if _, err = r.Outside.Listen(ctx, netip.AddrPortFrom(r.Addresses().Unspecified, LoadPort)); err != nil {
			return err
		}
	}
	if r.Server, err = r.startServer(ctx); err != nil {
		return err
	}
	_, err = r.Server.Listen(ctx, netip.AddrPortFrom(r.Addresses().Unspecified, carrierOf(r.Path).listenPort()))
	return err
}

// hosts reports whether the client runs on a host of the rig's part. A sandbox that
// connects to the client host needs both hosts.
func (r *Rig) hosts(c result.Client) bool {
	switch c {
	case result.Remote:
		return r.part.HasClient()
	case result.Outbound:
		return r.part == topology.Whole
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
	return load.StartServer(ctx, r.ServerPlace(result.Remote))
}

func (r *Rig) startClient(ctx context.Context, c result.Client) (*load.Client, error) {
	if m, ok := r.Maker.(Containers); ok && residents[c] != "" {
		return m.StartClient(ctx, r, c)
	}
	return load.StartClient(ctx, r.ClientPlace(c))
}
