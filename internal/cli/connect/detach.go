package connect

import (
	"fmt"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

// NewDetach returns the command `fairlead detach`.
func NewDetach(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "detach NAME | NETWORK SANDBOX",
		Short: "Detach a sandbox from a network",
		Long: "Remove one attachment by its name, or all attachments of a sandbox to a network. This\n" +
			"removes the interface, addresses, leases, routes, rate limits and publishes. A device\n" +
			"returns to the host. If a sandbox has a single attachment, you can name the sandbox instead\n" +
			"of the attachment, as for `fairlead attach`, e.g. by its PID. If the attachment does not\n" +
			"exist, the command succeeds.",
		Example: "  fairlead detach shop\n  fairlead detach web container:shop",
		Args:    command.Arguments(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, args []string) error {
			request := api.DetachRequest{Name: args[0], DryRun: r.DryRun}
			if len(args) == 2 {
				request = api.DetachRequest{Network: args[0], Sandbox: args[1], DryRun: r.DryRun}
			}
			return command.Do(c.Context(), r, admin.Detach, request,
				r.Printing(func(v api.View) string { return fmt.Sprintf("%s  detached", v.Name) }))
		},
		ValidArgsFunction: r.CompleteAttachments(),
	}
	r.Changes(c)
	return c
}
