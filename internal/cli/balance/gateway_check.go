package balance

import (
	"errors"
	"os"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/file"
	"fairlead/internal/process/hosted"
	"fairlead/internal/process/standalone"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

func newGatewayCheck(a *command.App) *cobra.Command {
	var url, method string
	c := &cobra.Command{
		Use:   "check FILE…",
		Short: "Check files of routers, services and middlewares",
		Long: "Check files of Traefik's file provider, or the gateway that a fairlead.yaml declares: show\n" +
			"the state of each object, and why it cannot be used. With --url, show the router that a request takes, or the nearest routers and what of\n" +
			"their rules does not match. Exit with 1 if an object cannot be used, or no router matches.",
		Example: "  fairlead gateway check /etc/gateway/dynamic.yml\n" +
			"  fairlead gateway check /etc/gateway/dynamic.yml --url https://example.com/shop",
		Args: command.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			check := standalone.Check
			if len(args) == 1 && declares(args[0]) {
				check = checkDeclared
			}
			result, err := check(args, url, method)
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

// declares reports whether a file is a fairlead.yaml with a gateway.
func declares(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && file.DeclaresGateway(text)
}

// checkDeclared checks the gateway of a fairlead.yaml.
func checkDeclared(paths []string, url, method string) (result standalone.Checked, err error) {
	text, err := os.ReadFile(paths[0])
	if err != nil {
		return result, err
	}
	set, err := file.Read([]file.Input{{Name: paths[0], Text: text}})
	if err != nil {
		return result, err
	}
	checked, err := hosted.NewChecked(*set.Spec.Gateway)
	if err != nil {
		return result, err
	}
	return standalone.Result(checked.Gateway, checked.Status(), url, method)
}

func printCheck(a *command.App, result standalone.Checked) error {
	rows := [][]string{{"KIND", "NAME", "STATE", "REASON"}}
	for _, s := range result.Objects {
		rows = append(rows, []string{s.Kind, s.Name, string(s.State), wording.OrDash(strings.Join(s.Reasons, "; "))})
	}
	if err := a.Out.Table(rows); err != nil || result.Answer == nil {
		return err
	}
	if err := a.Out.Lines(""); err != nil {
		return err
	}
	if err := a.Out.Table(wording.AnswerRows(*result.Answer)); err != nil {
		return err
	}
	return a.Out.Lines(wording.AnswerLines(*result.Answer)...)
}
