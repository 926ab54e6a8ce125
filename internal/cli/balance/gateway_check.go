package balance

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/process/standalone"

	"github.com/spf13/cobra"
)

func newGatewayCheck(a *command.App) *cobra.Command {
	var url, method string
	c := &cobra.Command{
		Use:   "check FILE…",
		Short: "Check files of routers, services and middlewares",
		Long: "Check files of Traefik's file provider: show the state of each object, and why it cannot be\n" +
			"used. With --url, show the router that a request takes, or the nearest routers and what of\n" +
			"their rules does not match. Exit with 1 if an object cannot be used, or no router matches.",
		Example: "  fairlead gateway check /etc/gateway/dynamic.yml\n" +
			"  fairlead gateway check /etc/gateway/dynamic.yml --url https://example.com/shop",
		Args: command.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			result, err := standalone.Check(args, url, method)
			if err != nil {
				return command.Usage(err)
			}
			if a.Output == "json" {
				err = a.Out.JSON(result)
			} else {
				err = printCheck(a, result)
			}
			if err == nil && result.Problem != "" {
				err = errors.New(result.Problem)
			}
			return err
		},
	}
	c.Flags().StringVar(&url, "url", "", "URL of a request to find the router of")
	c.Flags().StringVar(&method, "method", "GET", "method of that request")
	return c
}

func printCheck(a *command.App, result standalone.Checked) error {
	rows := [][]string{{"KIND", "NAME", "STATE", "REASON"}}
	for _, s := range result.Objects {
		rows = append(rows, []string{s.Kind, s.Name, string(s.State), command.OrDash(strings.Join(s.Reasons, "; "))})
	}
	if err := a.Out.Table(rows); err != nil || result.Answer == nil {
		return err
	}
	lines := []string{""}
	answer := result.Answer
	if answer.Router != "" {
		lines = append(lines, fmt.Sprintf("router %s, service %s", answer.Router, answer.Service))
		if len(answer.Middlewares) > 0 {
			lines = append(lines, "middlewares: "+strings.Join(answer.Middlewares, ", "))
		}
	} else {
		lines = append(lines, "no router matches: the answer is 404. The nearest routers:")
	}
	for _, n := range answer.Nearest {
		lines = append(lines, fmt.Sprintf("  %s: %s", n.Router, strings.Join(n.Why, "; ")))
	}
	return a.Out.Lines(lines...)
}
