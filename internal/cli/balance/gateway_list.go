package balance

import (
	"maps"
	"slices"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/view"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// routerLists, serviceLists and middlewareLists are what the commands show with -o json: the parts of the
// gateway's raw data, under their keys there.
type routerLists struct {
	Routers    map[string]view.Router `json:"routers,omitempty"`
	TCPRouters map[string]view.Router `json:"tcpRouters,omitempty"`
	UDPRouters map[string]view.Router `json:"udpRouters,omitempty"`
}

type serviceLists struct {
	Services    map[string]view.Service `json:"services,omitempty"`
	TCPServices map[string]view.Service `json:"tcpServices,omitempty"`
	UDPServices map[string]view.Service `json:"udpServices,omitempty"`
}

type middlewareLists struct {
	Middlewares    map[string]view.Middleware `json:"middlewares,omitempty"`
	TCPMiddlewares map[string]view.Middleware `json:"tcpMiddlewares,omitempty"`
}

type certificateList struct {
	Certificates []shown.Certificate `json:"certificates"`
}

func newGatewayRouters(a *command.App) *cobra.Command {
	return gatewayList(a, "routers", "List the routers of a running gateway for HTTP, TCP and UDP",
		func(d view.RawData) (any, [][]string) {
			lists := routerLists{d.Routers, d.TCPRouters, d.UDPRouters}
			rows := [][]string{{"PROTOCOL", "NAME", "ENTRY POINTS", "RULE", "SERVICE", "STATE", "REASON"}}
			rows = wording.RouterRows(rows, "http", lists.Routers)
			rows = wording.RouterRows(rows, "tcp", lists.TCPRouters)
			return lists, wording.RouterRows(rows, "udp", lists.UDPRouters)
		})
}

func newGatewayServices(a *command.App) *cobra.Command {
	return gatewayList(a, "services", "List the services of a running gateway for HTTP, TCP and UDP",
		func(d view.RawData) (any, [][]string) {
			lists := serviceLists{d.Services, d.TCPServices, d.UDPServices}
			rows := [][]string{{"PROTOCOL", "NAME", "TYPE", "SERVERS", "STATE", "REASON"}}
			rows = wording.GatewayServiceRows(rows, "http", lists.Services)
			rows = wording.GatewayServiceRows(rows, "tcp", lists.TCPServices)
			return lists, wording.GatewayServiceRows(rows, "udp", lists.UDPServices)
		})
}

func newGatewayMiddlewares(a *command.App) *cobra.Command {
	return gatewayList(a, "middlewares", "List the middlewares of a running gateway for HTTP and TCP",
		func(d view.RawData) (any, [][]string) {
			lists := middlewareLists{d.Middlewares, d.TCPMiddlewares}
			rows := [][]string{{"PROTOCOL", "NAME", "TYPE", "USED BY", "STATE", "REASON"}}
			rows = wording.MiddlewareRows(rows, "http", lists.Middlewares)
			return lists, wording.MiddlewareRows(rows, "tcp", lists.TCPMiddlewares)
		})
}

func newGatewayCertificates(a *command.App) *cobra.Command {
	return gatewayList(a, "certificates", "List the certificates of a running gateway",
		func(d view.RawData) (any, [][]string) {
			rows := [][]string{{"NAMES", "ISSUER", "VALID UNTIL", "USE", "RESOLVER", "STATE", "NEXT ATTEMPT", "REASON"}}
			for _, c := range d.Certificates {
				rows = append(rows, wording.CertificateRow(c))
			}
			return certificateList{d.Certificates}, rows
		})
}

// gatewayList returns a command that shows objects that the gateway's API lists. show returns
// them for -o json, and the rows of a table.
func gatewayList(a *command.App, what, short string,
	show func(view.RawData) (any, [][]string)) *cobra.Command {
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
			var d view.RawData
			if err := g.Get(c.Context(), "/api/rawdata", &d); err != nil {
				return err
			}
			value, rows := show(d)
			if a.Output == "json" {
				return a.Out.JSON(value)
			}
			for _, name := range slices.Sorted(maps.Keys(d.Sources)) {
				a.Err.Note("%s: %s", name, strings.Join(d.Sources[name].Errors, "; "))
			}
			return a.Out.Table(rows)
		},
	}
	g.Flags(c)
	g.Flag(c, "api")
	return c
}
