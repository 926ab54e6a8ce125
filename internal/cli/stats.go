package cli

import (
	"context"
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"github.com/spf13/cobra"
)

func newStats(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "stats",
		Short: "Show the traffic of endpoints and published ports",
		Long: "Show the traffic of each endpoint's link and each published port: bytes and packets in\n" +
			"(towards the workload) and out, dropped packets, flows since the start, and flows that are\n" +
			"open now. A dash marks a figure that the publish mode does not count. `fairlead daemon\n" +
			"--metrics` serves the same figures for Prometheus.",
		Example: "  fairlead stats\n  fairlead stats -o json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.read(c.Context(), func(client *admin.Client) error {
				s, err := client.Stats(c.Context())
				if err != nil {
					return err
				}
				return r.printStats(c.Context(), s)
			}, nil)
		},
	}
	r.flags(c)
	return c
}

func (r *remote) printStats(ctx context.Context, s api.Stats) error {
	if r.output == "json" {
		return r.json(s)
	}
	names := statsNames(ctx, s)
	for i, e := range s.Endpoints {
		s.Endpoints[i].Endpoint = names.endpoint(e.Endpoint)
		if shown, ok := names.networks[e.Network]; ok {
			s.Endpoints[i].Network = shown
		}
	}
	for i, p := range s.Publishes {
		s.Publishes[i].Endpoint = names.endpoint(p.Endpoint)
	}
	for _, problem := range s.Problems {
		r.err.note("fairlead: %s", problem)
	}
	if err := r.tabled(endpointStatsRows(s)); err != nil || len(s.Publishes) == 0 {
		return err
	}
	if err := r.out.line(""); err != nil {
		return err
	}
	return r.tabled(publishStatsRows(s))
}

// statsNames asks Docker for the containers' names if an endpoint is Docker's.
func statsNames(ctx context.Context, s api.Stats) dockerNames {
	var origins []model.Origin
	for _, e := range s.Endpoints {
		if strings.HasPrefix(e.Endpoint, string(model.FromDocker)+"-") {
			origins = append(origins, model.FromDocker)
		}
	}
	return askDocker(ctx, origins)
}

func endpointStatsRows(s api.Stats) [][]string {
	rows := [][]string{{"ENDPOINT", "NETWORK", "IN (PACKETS)", "OUT (PACKETS)", "DROPPED IN", "OUT"}}
	for _, e := range s.Endpoints {
		row := []string{e.Endpoint, e.Network, "-", "-", "-", "-"}
		if t := e.Traffic; t != nil {
			row = []string{e.Endpoint, e.Network, traffic(t.Bytes.In, t.Packets.In), traffic(t.Bytes.Out, t.Packets.Out),
				fmt.Sprint(t.Drops.In), fmt.Sprint(t.Drops.Out)}
		}
		rows = append(rows, row)
	}
	return rows
}

func publishStatsRows(s api.Stats) [][]string {
	rows := [][]string{{"PUBLISH", "TO", "VIA", "IN (PACKETS)", "OUT (PACKETS)", "FLOWS", "LIVE"}}
	for _, p := range s.Publishes {
		in, out := "-", "-"
		switch {
		case p.Bytes != nil && p.Packets != nil:
			in, out = traffic(p.Bytes.In, p.Packets.In), traffic(p.Bytes.Out, p.Packets.Out)
		case p.Bytes != nil:
			in, out = bytesText(p.Bytes.In), bytesText(p.Bytes.Out)
		}
		rows = append(rows, []string{fmt.Sprintf("%s%s/%s", syntax.FormatHost(p.Publish), p.HostPorts, p.Proto),
			fmt.Sprintf("%s:%s", p.Endpoint, p.Ports), string(p.Via), in, out, number(p.Flows), number(p.Live)})
	}
	return rows
}

// number writes a count, or a dash if there is none.
func number(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
