package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newEvents(a *app) *cobra.Command {
	r := &remote{app: a}
	follow := false
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what somebody else has changed and was put right, and how real servers fare",
		Long: "Show what happened to the host's networks without anybody asking the daemon: what\n" +
			"of ours somebody else has changed and the daemon has put right, what it cannot put\n" +
			"right, networks that the host cannot have for now, and what became of the real servers\n" +
			"of virtual services and why. The last 500 are kept for as long as the daemon runs.",
		Example: "  fairlead events\n  fairlead events -f            # and tell of those to come\n  fairlead events -f -o json    # one object a line",
		Args:    arguments(cobra.NoArgs),
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
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what happens from now on")
	return c
}

func (r *remote) printEvents(all []daemon.Event) error {
	if r.output == "json" {
		return r.json(admin.Events{Events: all})
	}
	rows := [][]string{{"TIME", "EVENT", "OBJECT", "WHAT"}}
	for _, e := range all {
		rows = append(rows, []string{e.Time.Format(time.DateTime), string(e.Kind), e.Object, orDash(about(e))})
	}
	return r.tabled(rows)
}

// followEvents writes a line for each event.
func (r *remote) followEvents(ctx context.Context, client *admin.Client) error {
	err := client.FollowEvents(ctx, func(e daemon.Event) error {
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

// about says in one line what an event is about.
func about(e daemon.Event) string {
	parts := []string{e.Detail}
	if e.Detail == "" {
		parts = []string{readable(strings.Join(e.Commands, "; "))}
	}
	if e.By != "" && e.Kind == daemon.Healed {
		parts = append(parts, "# changed by "+e.By)
	}
	return strings.TrimSpace(strings.Join(parts, "  "))
}
