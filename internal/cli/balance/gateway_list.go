package balance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"fairlead/internal/cli/command"
	"fairlead/internal/gateway"

	"github.com/spf13/cobra"
)

func newGatewayRouters(a *command.App) *cobra.Command {
	return gatewayList(a, "routers", "List the routers of a running gateway", func(d gateway.RawData) [][]string {
		rows := [][]string{{"NAME", "ENTRY POINTS", "RULE", "SERVICE", "STATE", "REASON"}}
		for _, name := range gateway.SortedKeys(d.Routers) {
			r := d.Routers[name]
			rows = append(rows, []string{name, command.OrDash(strings.Join(r.EntryPoints, ",")), command.OrDash(r.Rule),
				command.OrDash(r.Service), string(r.Status), command.OrDash(strings.Join(r.Errors, "; "))})
		}
		return rows
	})
}

func newGatewayServices(a *command.App) *cobra.Command {
	return gatewayList(a, "services", "List the services of a running gateway", func(d gateway.RawData) [][]string {
		rows := [][]string{{"NAME", "SERVERS", "STATE", "REASON"}}
		for _, name := range gateway.SortedKeys(d.Services) {
			s := d.Services[name]
			var servers []string
			for url, state := range s.ServerStatus {
				servers = append(servers, url+" "+strings.ToLower(state))
			}
			slices.Sort(servers)
			rows = append(rows, []string{name, command.OrDash(strings.Join(servers, ", ")), string(s.Status),
				command.OrDash(strings.Join(s.Errors, "; "))})
		}
		return rows
	})
}

// gatewayList returns a command that shows objects that the gateway's API lists.
func gatewayList(a *command.App, what, short string, table func(gateway.RawData) [][]string) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   what,
		Short: short,
		Long: short + ": their state, and why one cannot be used. The\n" +
			"gateway must serve its API (--api.insecure, or a router to api@internal).",
		Example: "  fairlead gateway " + what + "\n  fairlead gateway " + what + " --api http://10.0.0.2:8080 -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := readAPI(c.Context(), at)
			if err != nil {
				return err
			}
			if a.Output == "json" {
				return a.Out.JSON(d)
			}
			return a.Out.Table(table(d))
		},
	}
	c.Flags().StringVar(&at, "api", "http://127.0.0.1:8080", "URL of the gateway's API")
	return c
}

// readAPI reads all objects from the gateway's API.
func readAPI(ctx context.Context, at string) (gateway.RawData, error) {
	var d gateway.RawData
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(at, "/")+"/api/rawdata", nil)
	if err != nil {
		return d, command.Usage(fmt.Errorf("--api %s: %w", at, err))
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return d, fmt.Errorf("read the gateway's API: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return d, fmt.Errorf("read the gateway's API at %s: it answers %s: start the gateway with --api.insecure, or "+
			"give the URL of its API with --api", at, answer.Status)
	}
	return d, json.NewDecoder(io.LimitReader(answer.Body, command.MaxFile)).Decode(&d)
}
