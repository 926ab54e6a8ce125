package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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
			return command.Do(c.Context(), r, admin.CreateToken, request, func(t api.ClusterToken) error {
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
	return newList(a, &cobra.Command{
		Use:     "ls",
		Short:   "List the valid tokens",
		Example: "  fairlead cluster token ls",
	}, admin.ListTokens, func(all admin.ClusterTokens) [][]string {
		rows := [][]string{{"ID", "EXPIRES", "USES"}}
		for _, t := range all.Tokens {
			rows = append(rows, []string{t.ID, t.Expires.Local().Format(time.DateTime), fmt.Sprint(t.Uses)})
		}
		return rows
	})
}

func newTokenRemove(a *command.App) *cobra.Command {
	c, r := newChange(a, &cobra.Command{
		Use:     "rm ID",
		Short:   "Remove a token",
		Example: "  fairlead cluster token rm 3f2a9c0d1e4b",
		Args:    command.Arguments(cobra.ExactArgs(1)),
	}, admin.RemoveToken, func(_ *cobra.Command, args []string) (admin.TokenID, error) {
		return admin.TokenID{ID: args[0]}, nil
	})
	c.ValidArgsFunction = completeTokens(r)
	return c
}

// completeTokens completes the first argument with the IDs of tokens.
func completeTokens(r *command.Remote) cobra.CompletionFunc {
	return command.CompleteFirst(r, func(ctx context.Context, c *admin.Client) ([]api.ClusterToken, error) {
		all, err := admin.ListTokens.Do(ctx, c)
		return all.Tokens, err
	}, func(t api.ClusterToken) string { return t.ID })
}

// joinToken is the environment variable with a join token.
const joinToken = "FAIRLEAD_JOIN_TOKEN"

// tokenOf returns the token of the argument, the file or the environment. Exactly one must have it; the environment
// is not read if another one has it.
func tokenOf(args []string, file string, stdin io.Reader) (string, error) {
	var text []byte
	var err error
	switch {
	case len(args) > 0 && file != "":
		return "", errors.New("the token is given twice: leave the argument or --token-file out")
	case len(args) > 0:
		return args[0], nil
	case file == "":
		if token := os.Getenv(joinToken); token != "" {
			return token, nil
		}
		return "", errors.New("the token is missing: give it as the argument, with --token-file or in " + joinToken)
	case file == "-":
		text, err = io.ReadAll(io.LimitReader(stdin, maxToken))
	default:
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if token := strings.TrimSpace(string(text)); token != "" && len(text) < maxToken {
		return token, nil
	}
	return "", fmt.Errorf("read the token: %s has none: create one with `fairlead cluster token create` on a node", file)
}

// maxToken is more than a token has, in bytes.
const maxToken = 64 << 10
