package cli

import (
	"fmt"
	"strings"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/text"
	"fairlead/internal/model"
	"fairlead/internal/promise"

	"github.com/spf13/cobra"
)

func newPublish(a *app) *cobra.Command {
	r := &remote{app: a}
	var via string
	var promises []string
	c := &cobra.Command{
		Use:   "publish SANDBOX|NAME [ADDRESS:]HOST:CONTAINER[/udp]…",
		Short: "Publish ports of an attached sandbox while it runs",
		Long: "Publish ports of an attached sandbox, by the sandbox or the attachment's name. Ports\n" +
			"that are published already stay as they are; another port of the sandbox's for the\n" +
			"same host port takes its place.",
		Example: "  fairlead publish shop 8080:80\n" +
			"  fairlead publish shop 127.0.0.1:5353:53/udp '[::1]:5353:53/udp'\n" +
			"  fairlead publish shop 9000-9010:8000-8010 --via nat\n" +
			"  fairlead publish shop 8080:80 --promise client-address",
		Args: arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			by, err := text.Via(via)
			if err != nil {
				return usage(err)
			}
			if _, err := promise.Named(promises); err != nil {
				return usage(err)
			}
			request := daemon.PublishRequest{Target: args[0], DryRun: r.dryRun}
			for _, port := range args[1:] {
				p, err := text.Publish(port)
				if err != nil {
					return usage(fmt.Errorf("publish %s: %w", port, err))
				}
				p.Via, p.Promises = by, promises
				request.Publishes = append(request.Publishes, p)
			}
			return r.change(c, request, (*admin.Client).Publish)
		},
		ValidArgsFunction: r.completeAttachments,
	}
	r.changes(c)
	c.Flags().StringVar(&via, "via", string(model.ViaAuto), "the way: "+strings.Join(text.Vias, ", "))
	c.Flags().StringSliceVar(&promises, "promise", nil, "what the way must promise, as `fairlead paths` names it (repeatable)")
	// They fail only for a flag that is not there or completes already.
	_ = c.RegisterFlagCompletionFunc("via", cobra.FixedCompletions(text.Vias, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("promise", completePromises)
	return c
}

func newUnpublish(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "unpublish SANDBOX|NAME [ADDRESS:]HOST[:CONTAINER][/udp]…",
		Short: "Publish ports of an attached sandbox no more",
		Long:  "Take publishes back, as they were typed or by the host's side alone. What is not\npublished is fine.",
		Example: "  fairlead unpublish shop 8080\n" +
			"  fairlead unpublish shop 8080:80 127.0.0.1:5353/udp",
		Args: arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			request := daemon.PublishRequest{Target: args[0], DryRun: r.dryRun}
			for _, port := range args[1:] {
				p, err := text.Unpublish(port)
				if err != nil {
					return usage(fmt.Errorf("unpublish %s: %w", port, err))
				}
				request.Publishes = append(request.Publishes, p)
			}
			return r.change(c, request, (*admin.Client).Unpublish)
		},
		ValidArgsFunction: r.completeAttachments,
	}
	r.changes(c)
	return c
}
