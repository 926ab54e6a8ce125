package explain

import (
	"context"
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"github.com/spf13/cobra"
)

// NewStats returns the command `fairlead stats`.
func NewStats(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "stats",
		Short: "Show the traffic of endpoints and published ports",
		Long: "Show the traffic of each endpoint's link and each published port: bytes and packets in\n" +
			"(towards the workload) and out, dropped packets, flows since the start, and flows that are\n" +
			"open now. A dash marks a figure that the publish mode does not count. `fairlead daemon\n" +
			"--metrics` serves the same figures for Prometheus.",
		Example: "  fairlead stats\n  fairlead stats -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.Read(c.Context(), func(client *admin.Client) error {
				s, err := client.Stats(c.Context())
				if err != nil {
					return err
				}
				return printStats(r, c.Context(), s)
			}, nil)
		},
	}
	r.Flags(c)
	return c
}

func printStats(r *command.Remote, ctx context.Context, s api.Stats) error {
	if r.Output == "json" {
		return r.JSON(s)
	}
	names := statsNames(ctx, s)
	for i, e := range s.Endpoints {
		s.Endpoints[i].Endpoint = names.Endpoint(e.Endpoint)
		if shown, ok := names.Networks[e.Network]; ok {
			s.Endpoints[i].Network = shown
		}
	}
	for i, p := range s.Publishes {
		s.Publishes[i].Endpoint = names.Endpoint(p.Endpoint)
	}
	for _, problem := range s.Problems {
		r.Err.Note("fairlead: %s", problem)
	}
	if err := r.Tabled(endpointStatsRows(s)); err != nil || len(s.Publishes) == 0 {
		return err
	}
	if err := r.Out.Line(""); err != nil {
		return err
	}
	return r.Tabled(publishStatsRows(s))
}

// statsNames asks Docker for the containers' names if an endpoint is Docker's.
func statsNames(ctx context.Context, s api.Stats) command.DockerNames {
	var origins []model.Origin
	for _, e := range s.Endpoints {
		if strings.HasPrefix(e.Endpoint, string(model.FromDocker)+"-") {
			origins = append(origins, model.FromDocker)
		}
	}
	return command.AskDocker(ctx, origins)
}

func endpointStatsRows(s api.Stats) [][]string {
	rows := [][]string{{"ENDPOINT", "NETWORK", "IN (PACKETS)", "OUT (PACKETS)", "DROPPED IN", "OUT"}}
	for _, e := range s.Endpoints {
		row := []string{e.Endpoint, e.Network, "-", "-", "-", "-"}
		if t := e.Traffic; t != nil {
			row = []string{e.Endpoint, e.Network, command.Traffic(t.Bytes.In, t.Packets.In),
				command.Traffic(t.Bytes.Out, t.Packets.Out),
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
			in, out = command.Traffic(p.Bytes.In, p.Packets.In), command.Traffic(p.Bytes.Out, p.Packets.Out)
		case p.Bytes != nil:
			in, out = command.BytesText(p.Bytes.In), command.BytesText(p.Bytes.Out)
		}
		rows = append(rows, []string{fmt.Sprintf("%s%s/%s", syntax.FormatHost(p.Publish), p.HostPorts, p.Proto),
			fmt.Sprintf("%s:%s", p.Endpoint, p.Ports), string(p.Via), in, out, command.Number(p.Flows),
			command.Number(p.Live)})
	}
	return rows
}
