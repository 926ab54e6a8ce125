package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newServiceWatch(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "watch [NAME…]",
		Short: "Print the events of virtual services as they occur",
		Long: "Print the events of all or the named virtual services until interrupted: real servers that\n" +
			"go down or come up, and why; drains; lost and regained quorums; use of the sorry server.\n" +
			"`fairlead events` shows past events.",
		Example: "  fairlead service watch\n  fairlead service watch web -o json    # one JSON object per line",
		Args:    arguments(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, args []string) error {
			return r.read(c.Context(), func(client *admin.Client) error { return r.watchServices(c.Context(), client, args) }, nil)
		},
		ValidArgsFunction: r.completeServices,
	}
	r.flags(c)
	return c
}

func (r *remote) watchServices(ctx context.Context, client *admin.Client, names []string) error {
	if _, err := named(ctx, client, names); err != nil {
		return err
	}
	began := time.Now()
	err := client.FollowEvents(ctx, func(e api.Event) error {
		what, is := strings.CutPrefix(e.Object, "service ")
		of := func(name string) bool { return what == name || strings.HasPrefix(what, name+" real ") }
		if e.Time.Before(began) || !is || len(names) > 0 && !slices.ContainsFunc(names, of) {
			return nil
		}
		if r.output == "json" {
			return r.out.jsonLine(e)
		}
		return r.out.line("%s  %s  %s  %s", e.Time.Format(time.DateTime), e.Kind, what, orDash(about(e)))
	})
	var sig interrupted
	if errors.As(context.Cause(ctx), &sig) {
		return commandExit{code: exitSignal + int(sig)}
	}
	return err
}
