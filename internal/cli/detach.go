package cli

import (
	"fmt"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newDetach(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "detach NAME | NETWORK SANDBOX",
		Short: "Take an attachment away, with everything that came with it",
		Long: "Take an attachment away by its name, or all of a sandbox to a network: interface,\n" +
			"addresses, leases, routes, bounds and publishes. A device goes back to the host.\n" +
			"Instead of the name, a sandbox with a single attachment can be named, as for\n" +
			"`fairlead attach`, e.g. by its PID. It is no error if there is no such attachment.",
		Example: "  fairlead detach shop\n  fairlead detach web container:shop",
		Args:    arguments(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, args []string) error {
			request := daemon.DetachRequest{Name: args[0], DryRun: r.dryRun}
			if len(args) == 2 {
				request = daemon.DetachRequest{Network: args[0], Sandbox: args[1], DryRun: r.dryRun}
			}
			return r.call(c.Context(), func(client *admin.Client) error {
				result, err := client.Detach(c.Context(), request)
				if err != nil {
					return err
				}
				return r.print(result, func(v daemon.View) string { return fmt.Sprintf("%s  detached", v.Name) })
			})
		},
		ValidArgsFunction: r.completeAttachments,
	}
	r.changes(c)
	return c
}
