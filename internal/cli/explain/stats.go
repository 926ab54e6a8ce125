package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/wording"

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
			"open now. The real servers of virtual services have the same figures. A dash marks a figure\n" +
			"that is not counted; a line below the tables says why. `fairlead daemon --metrics` serves\n" +
			"the same figures for Prometheus.",
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
	if err := r.Tabled(endpointStatsRows(s)); err != nil {
		return err
	}
	for _, rows := range [][][]string{publishStatsRows(s), realStatsRows(s)} {
		if len(rows) == 1 {
			continue
		}
		if err := errors.Join(r.Out.Line(""), r.Tabled(rows)); err != nil {
			return err
		}
	}
	return printNotCounted(r, s)
}

// printNotCounted prints which figures are not counted, and why: one line per reason.
func printNotCounted(r *command.Remote, s api.Stats) error {
	var reasons []string
	of := map[string][]string{}
	add := func(name, reason string) {
		if reason == "" {
			return
		}
		if of[reason] == nil {
			reasons = append(reasons, reason)
		}
		of[reason] = append(of[reason], name)
	}
	for _, e := range s.Endpoints {
		add(e.Endpoint, e.NotCounted)
	}
	for _, p := range s.Publishes {
		add(wording.PublishText(p), p.NotCounted)
	}
	for _, v := range s.Services {
		for _, real := range v.Reals {
			add(v.Service+" "+wording.StatsReal(real), real.NotCounted)
		}
	}
	for i, reason := range reasons {
		if i == 0 {
			if err := r.Out.Line(""); err != nil {
				return err
			}
		}
		if err := r.Out.Line("not counted for %s: %s", someNames(of[reason]), reason); err != nil {
			return err
		}
	}
	return nil
}

// someNames lists the first few names and counts the rest.
func someNames(all []string) string {
	const few = 3
	if len(all) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
	}
	return strings.Join(all, ", ")
}

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
			row = []string{e.Endpoint, e.Network, wording.Traffic(t.Bytes.In, t.Packets.In),
				wording.Traffic(t.Bytes.Out, t.Packets.Out),
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
			in, out = wording.Traffic(p.Bytes.In, p.Packets.In), wording.Traffic(p.Bytes.Out, p.Packets.Out)
		case p.Bytes != nil:
			in, out = wording.BytesText(p.Bytes.In), wording.BytesText(p.Bytes.Out)
		}
		rows = append(rows, []string{wording.PublishText(p),
			fmt.Sprintf("%s:%s", p.Endpoint, p.Ports), string(p.Via), in, out, wording.Number(p.Flows),
			wording.Number(p.Live)})
	}
	return rows
}

func realStatsRows(s api.Stats) [][]string {
	rows := [][]string{{"SERVICE", "REAL SERVER", "PLANE", "IN (PACKETS)", "OUT (PACKETS)", "FLOWS", "LIVE"}}
	for _, v := range s.Services {
		for _, real := range v.Reals {
			in, out := "-", "-"
			if b, p := real.Bytes, real.Packets; b != nil && p != nil {
				in, out = wording.TrafficOrDash(b.In, p.In), wording.TrafficOrDash(b.Out, p.Out)
			}
			rows = append(rows, []string{v.Service, wording.StatsReal(real), wording.OrDash(string(v.Plane)), in, out,
				wording.Number(real.Flows), wording.Number(real.Live)})
		}
	}
	return rows
}
