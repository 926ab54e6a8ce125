package explain

import (
	"context"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// NewEvents returns the command `fairlead events`.
func NewEvents(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
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
		Args: command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.Read(c.Context(), func(client *admin.Client) error {
				if follow {
					return followEvents(r, c.Context(), client)
				}
				all, err := client.Events(c.Context())
				if err != nil {
					return err
				}
				return printEvents(r, all)
			}, nil)
		},
	}
	r.Flags(c)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "also print new events as they occur, until interrupted")
	return c
}

func printEvents(r *command.Remote, all []api.Event) error {
	if r.Output == "json" {
		return r.JSON(admin.Events{Events: all})
	}
	rows := [][]string{{"TIME", "EVENT", "OBJECT", "DETAIL"}}
	for _, e := range all {
		rows = append(rows, []string{e.Time.Format(time.DateTime), string(e.Kind), e.Object,
			wording.OrDash(wording.About(e))})
	}
	return r.Tabled(rows)
}

// followEvents prints one line per event until it is interrupted.
func followEvents(r *command.Remote, ctx context.Context, client *admin.Client) error {
	return r.Follow(ctx, client, func(e api.Event) (string, bool) { return e.Object, true })
}
