package explain

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/explain/flow"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
)

// services returns the daemon's virtual services, or none if no daemon runs.
func services(r *command.Remote, ctx context.Context) ([]flow.Known, error) {
	views, err := admin.NewClient(r.Socket).Services(ctx)
	if err != nil && !command.Gone(err) {
		return nil, err
	}
	all := make([]flow.Known, len(views))
	for i, v := range views {
		all[i] = known(v)
	}
	return all, nil
}

// known converts a virtual service for package flow.
func known(v api.ServiceView) flow.Known {
	k := flow.Known{Name: v.Name, Frontends: v.Frontends(), Status: string(v.Status), Problem: v.Problem,
		Routed: v.SourceNAT == model.SourceNATRouted}
	for _, s := range v.Servers {
		k.Reals = append(k.Reals, flow.Candidate{At: netip.AddrPortFrom(s.Address, s.Port), Endpoint: s.Endpoint,
			Weight: s.Weight, State: string(s.State), Cause: s.Cause})
	}
	return k
}

// candidates returns one line per real server that can get a flow.
func candidates(b *flow.Balance) []string {
	if b == nil {
		return nil
	}
	lines := make([]string, len(b.Candidates))
	width := 0
	name := func(c flow.Candidate) string {
		if c.Endpoint != "" {
			return fmt.Sprintf("%s (%s)", c.At, c.Endpoint)
		}
		return c.At.String()
	}
	for _, c := range b.Candidates {
		width = max(width, len(name(c)))
	}
	for i, c := range b.Candidates {
		mark := "  "
		if c.Taken {
			mark = "->"
		}
		lines[i] = fmt.Sprintf("%s %-*s  weight %d", mark, width, name(c), c.Weight)
		if state := cmp.Or(c.State, "-"); state != "-" {
			lines[i] += ", " + state
		}
		if c.Cause != "" {
			lines[i] += ": " + c.Cause
		}
	}
	return lines
}
