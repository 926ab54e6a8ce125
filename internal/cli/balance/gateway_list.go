package balance

import (
	"slices"
	"strings"
	"time"

	"fairlead/internal/cli/command"
	"fairlead/internal/gateway"
	gatewaymodel "fairlead/internal/model/gateway"

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

func newGatewayCertificates(a *command.App) *cobra.Command {
	return gatewayList(a, "certificates", "List the certificates of a running gateway",
		func(d gateway.RawData) [][]string {
			rows := [][]string{{"NAMES", "ISSUER", "VALID UNTIL", "USE", "RESOLVER", "STATE", "NEXT ATTEMPT", "REASON"}}
			for _, c := range d.Certificates {
				use := "for these names"
				if c.Default {
					use = "for names that no other has"
				}
				from := gatewaymodel.CertificateState{}
				if c.ACME != nil {
					from = *c.ACME
				}
				rows = append(rows, []string{command.OrDash(strings.Join(c.Names, ",")), command.OrDash(c.Issuer),
					timeOrDash(c.NotAfter), use, command.OrDash(from.Resolver), command.OrDash(from.State),
					timeOrDash(from.Next), command.OrDash(from.Reason)})
			}
			return rows
		})
}

func timeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateTime)
}

// gatewayList returns a command that shows objects that the gateway's API lists.
func gatewayList(a *command.App, what, short string, table func(gateway.RawData) [][]string) *cobra.Command {
	g := &command.GatewayAPI{Remote: &command.Remote{App: a}}
	c := &cobra.Command{
		Use:   what,
		Short: short,
		Long: short + ": that of the daemon, which `gateway:` in\n" +
			"fairlead.yaml declares, or a standalone one. A standalone gateway must serve its API\n" +
			"(--api.insecure, or a router to api@internal).",
		Example: "  fairlead gateway " + what + "\n  fairlead gateway " + what + " --api http://10.0.0.2:8080 -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			var d gateway.RawData
			if err := g.Get(c.Context(), "/api/rawdata", &d); err != nil {
				return err
			}
			if a.Output == "json" {
				return a.Out.JSON(d)
			}
			return a.Out.Table(table(d))
		},
	}
	g.Flags(c)
	g.Flag(c, "api")
	return c
}
