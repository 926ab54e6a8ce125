package cluster

import (
	"fmt"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newToken(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Create, list and remove join tokens",
	}
	c.AddCommand(newTokenCreate(a), newTokenList(a), newTokenRemove(a))
	return c
}

func newTokenCreate(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var request api.ClusterTokenRequest
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a token with which hosts join the cluster",
		Long: "Print a token for `fairlead cluster join`. Whoever has it can make a host a node until it has\n" +
			"expired or was used: send it over a channel that you trust.",
		Example: "  fairlead cluster token create\n  fairlead cluster token create --uses 5 --life 10m",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.Call(c.Context(), func(client *admin.Client) error {
				t, err := client.CreateToken(c.Context(), request)
				if err != nil {
					return err
				}
				if r.Output == "json" {
					return r.JSON(t)
				}
				return r.Out.Line("%s", t.Text)
			})
		},
	}
	r.Flags(c)
	c.Flags().DurationVar(&request.Life, "life", time.Hour, "how long the token is valid, at most 720h")
	c.Flags().IntVar(&request.Uses, "uses", 1, "how many hosts can join with the token, at most 1000")
	return c
}

func newTokenList(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List the valid tokens",
		Example: "  fairlead cluster token ls",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.Read(c.Context(), func(client *admin.Client) error {
				all, err := client.Tokens(c.Context())
				if err != nil {
					return err
				}
				if r.Output == "json" {
					return r.JSON(admin.ClusterTokens{Tokens: all})
				}
				rows := [][]string{{"ID", "EXPIRES", "USES"}}
				for _, t := range all {
					rows = append(rows, []string{t.ID, t.Expires.Local().Format(time.DateTime), fmt.Sprint(t.Uses)})
				}
				return r.Tabled(rows)
			}, nil)
		},
	}
	r.Flags(c)
	return c
}

func newTokenRemove(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:     "rm ID",
		Short:   "Remove a token",
		Example: "  fairlead cluster token rm 3f2a9c0d1e4b",
		Args:    command.Arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return change(r, c.Context(), func(client *admin.Client) (api.Result, error) {
				return client.RemoveToken(c.Context(), args[0])
			})
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			all, err := admin.NewClient(r.Socket).Tokens(c.Context())
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var ids []cobra.Completion
			for _, t := range all {
				ids = append(ids, t.ID)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
	}
	r.Flags(c)
	return c
}
