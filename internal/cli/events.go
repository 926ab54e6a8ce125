package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newEvents(a *app) *cobra.Command {
	r := &remote{app: a}
	follow := false
	c := &cobra.Command{
		Use:   "events",
		Short: "Show repairs, failures, and changes of real servers",
		Long: "Show what happened on the host without a request to the daemon: objects that another program\n" +
			"changed and the daemon repaired, repairs that failed, networks that became unavailable or\n" +
			"available, and state changes of virtual services and their real servers, with the cause.\n" +
			"The daemon keeps the last 500 events until it ends.",
		Example: "  fairlead events\n  fairlead events -f            # also print new events as they occur\n  " +
			"fairlead events -f -o json    # one JSON object per line",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.read(c.Context(), func(client *admin.Client) error {
				if follow {
					return r.followEvents(c.Context(), client)
				}
				all, err := client.Events(c.Context())
				if err != nil {
					return err
				}
				return r.printEvents(all)
			}, nil)
		},
	}
	r.flags(c)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "also print new events as they occur, until interrupted")
	return c
}

func (r *remote) printEvents(all []api.Event) error {
	if r.output == "json" {
		return r.json(admin.Events{Events: all})
	}
	rows := [][]string{{"TIME", "EVENT", "OBJECT", "DETAIL"}}
	for _, e := range all {
		rows = append(rows, []string{e.Time.Format(time.DateTime), string(e.Kind), e.Object, orDash(about(e))})
	}
	return r.tabled(rows)
}

// followEvents prints one line per event until it is interrupted.
func (r *remote) followEvents(ctx context.Context, client *admin.Client) error {
	err := client.FollowEvents(ctx, func(e api.Event) error {
		if r.output == "json" {
			return r.out.jsonLine(e)
		}
		return r.out.line("%s  %s  %s  %s", e.Time.Format(time.DateTime), e.Kind, e.Object, orDash(about(e)))
	})
	var sig interrupted
	if errors.As(context.Cause(ctx), &sig) {
		return commandExit{code: exitSignal + int(sig)}
	}
	return err
}

// about returns the details of an event in one line.
func about(e api.Event) string {
	parts := []string{e.Detail}
	if e.Detail == "" {
		parts = []string{readable(strings.Join(e.Commands, "; "))}
	}
	if e.By != "" && e.Kind == api.Healed {
		parts = append(parts, "# changed by "+e.By)
	}
	return strings.TrimSpace(strings.Join(parts, "  "))
}
