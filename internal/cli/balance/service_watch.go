package balance

import (
	"context"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newServiceWatch(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "watch [NAME…]",
		Short: "Print the events of virtual services as they occur",
		Long: "Print the events of all or the named virtual services until interrupted: real servers that\n" +
			"go down or come up, and why; drains; lost and regained quorums; use of the sorry server.\n" +
			"`fairlead events` shows past events.",
		Example: "  fairlead service watch\n  fairlead service watch web -o json    # one JSON object per line",
		Args:    command.Arguments(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, args []string) error {
			return r.Read(c.Context(), func(client *admin.Client) error {
				return watchServices(r, c.Context(), client,
					args)
			}, nil)
		},
		ValidArgsFunction: completeServices(r),
	}
	r.Flags(c)
	return c
}

func watchServices(r *command.Remote, ctx context.Context, client *admin.Client, names []string) error {
	if _, err := named(ctx, client, names); err != nil {
		return err
	}
	began := time.Now()
	return r.Follow(ctx, client, func(e api.Event) (string, bool) {
		what, is := strings.CutPrefix(e.Object, "service ")
		of := func(name string) bool { return what == name || strings.HasPrefix(what, name+" real ") }
		return what, is && !e.Time.Before(began) && (len(names) == 0 || slices.ContainsFunc(names, of))
	})
}
