package connect

import (
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/promise"
	"fairlead/internal/syntax"

	"github.com/spf13/cobra"
)

// NewPublish returns the command `fairlead publish`.
func NewPublish(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var via string
	var promises []string
	c := &cobra.Command{
		Use:   "publish SANDBOX|NAME [ADDRESS:]HOST:CONTAINER[/udp]…",
		Short: "Publish ports of an attached sandbox while it runs",
		Long: "Publish ports of an attached sandbox, which is named by itself or by its attachment. Other\n" +
			"published ports stay unchanged. If the sandbox has already published the host port with\n" +
			"another container port, the new one replaces it.",
		Example: "  fairlead publish shop 8080:80\n" +
			"  fairlead publish shop 127.0.0.1:5353:53/udp '[::1]:5353:53/udp'\n" +
			"  fairlead publish shop 9000-9010:8000-8010 --via nat\n" +
			"  fairlead publish shop 8080:80 --promise lan-source",
		Args: command.Arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			by, err := syntax.Via(via)
			if err != nil {
				return command.Usage(err)
			}
			if _, err := promise.Named(promises); err != nil {
				return command.Usage(err)
			}
			request := api.PublishRequest{Target: args[0], DryRun: r.DryRun}
			for _, port := range args[1:] {
				p, err := syntax.Publish(port)
				if err != nil {
					return command.Usage(fmt.Errorf("publish %s: %w", port, err))
				}
				p.Via, p.Promises = by, promises
				request.Publishes = append(request.Publishes, p)
			}
			return change(r, c, request, admin.Publish)
		},
		ValidArgsFunction: r.CompleteAttachments(),
	}
	r.Changes(c)
	c.Flags().StringVar(&via, "via", string(model.ViaAuto), "publish mode: "+strings.Join(syntax.Vias, ", "))
	c.Flags().StringSliceVar(&promises, "promise", nil, "`promises` that the mode must keep, as fairlead paths "+
		"names them (repeatable)")
	// They fail only for an unknown flag or one that has a completion already.
	_ = c.RegisterFlagCompletionFunc("via", cobra.FixedCompletions(syntax.Vias, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("promise", command.CompletePromises)
	return c
}

// NewUnpublish returns the command `fairlead unpublish`.
func NewUnpublish(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "unpublish SANDBOX|NAME [ADDRESS:]HOST[:CONTAINER][/udp]…",
		Short: "Stop publishing ports of an attached sandbox",
		Long: "Remove publishes of an attached sandbox. Name each as for `fairlead publish`, or by its host\n" +
			"address and port alone. If a port is not published, the command succeeds.",
		Example: "  fairlead unpublish shop 8080\n" +
			"  fairlead unpublish shop 8080:80 127.0.0.1:5353/udp",
		Args: command.Arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			request := api.PublishRequest{Target: args[0], DryRun: r.DryRun}
			for _, port := range args[1:] {
				p, err := syntax.Unpublish(port)
				if err != nil {
					return command.Usage(fmt.Errorf("unpublish %s: %w", port, err))
				}
				request.Publishes = append(request.Publishes, p)
			}
			return change(r, c, request, admin.Unpublish)
		},
		ValidArgsFunction: r.CompleteAttachments(),
	}
	r.Changes(c)
	return c
}
