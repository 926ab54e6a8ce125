package connect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/syntax"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// NewList returns the command `fairlead ls`.
func NewList(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List attachments with their addresses and published ports",
		Example: "  fairlead ls\n  fairlead ls -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			show := func(all []api.View) error { return printAttachments(r, c.Context(), all) }
			ask := func(ctx context.Context, client *admin.Client) ([]api.View, error) {
				return client.Attachments(ctx)
			}
			return command.Show(c.Context(), r, ask, show, func(w model.Desired) error { return show(stored.Views(w)) })
		},
	}
	r.Flags(c)
	return c
}

func printAttachments(r *command.Remote, ctx context.Context, all []api.View) error {
	if r.Output == "json" {
		return r.JSON(admin.Attachments{Attachments: all})
	}
	var origins []model.Origin
	for _, v := range all {
		origins = append(origins, v.Origin)
	}
	names := command.AskDocker(ctx, origins)
	rows := [][]string{{"NAME", "NETWORK", "SANDBOX", "INTERFACE", "ADDRESSES", "PUBLISHES", "STATE"}}
	for _, v := range all {
		state := string(v.Status)
		if v.Problem != "" {
			state += ": " + v.Problem
		}
		rows = append(rows, []string{v.Name, names.Network(v.Network), names.Sandbox(v.Attachment), v.InterfaceName(),
			wording.OrDash(strings.Join(command.Addresses(v), " ")),
			wording.OrDash(strings.Join(few(publishes(v)), " ")), state})
	}
	return r.Tabled(rows)
}

// maxListedPublishes is how many publishes a row of a table names.
const maxListedPublishes = 4

// few shortens a list, so that the next column stays visible.
func few(all []string) []string {
	if len(all) <= maxListedPublishes {
		return all
	}
	return append(slices.Clip(all[:maxListedPublishes]), fmt.Sprintf("and %d more", len(all)-maxListedPublishes))
}

// publishes returns the published ports, each with its mode: 8080:80/tcp(ebpf). A !
// marks a port that is not published because of a problem.
func publishes(v api.View) []string {
	var all []string
	for _, p := range v.Publishes {
		line := fmt.Sprintf("%s%s:%s/%s(%s)", syntax.FormatHost(p.Publish), p.HostPorts, p.Ports, p.Proto, p.Via)
		if p.Problem != "" {
			line += "!"
		}
		all = append(all, line)
	}
	return all
}

// change requests a change of an attachment's publishes, and prints the new ones.
func change(r *command.Remote, c *cobra.Command, request api.PublishRequest,
	call admin.Call[api.PublishRequest, api.Result]) error {
	return command.Do(c.Context(), r, call, request, r.Printing(func(v api.View) string {
		return fmt.Sprintf("%s  %s", v.Name, wording.OrDash(strings.Join(publishes(v), " ")))
	}))
}
