package cluster

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newBGP(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "bgp",
		Short: "Routers to which the nodes announce addresses",
	}
	c.AddCommand(newBGPAdd(a), newBGPList(a), newBGPRemove(a))
	return c
}

func newBGPAdd(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var p api.ClusterBGPPeer
	c := &cobra.Command{
		Use:   "add ROUTER --as NUMBER --local-as NUMBER",
		Short: "Announce the cluster's addresses to a router",
		Long: "Connect the nodes to a router by BGP. They announce the addresses that were added with `fairlead\n" +
			"cluster address add --announce bgp`, and accept no routes. The router must expect each node as a\n" +
			"neighbour. With BFD, the router notices a node that is gone within a second, without it within 9\n" +
			"seconds.",
		Example: "  fairlead cluster bgp add 192.0.2.1 --as 64512 --local-as 64513\n" +
			"  fairlead cluster bgp add 192.0.2.1 --as 64512 --local-as 64513 --node host1,host2 --bfd=false",
		Args: command.Arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if p.Address, err = parseRouter(args[0]); err != nil {
				return err
			}
			return change(r, c.Context(), func(client *admin.Client) (api.Result, error) {
				return client.AddBGPPeer(c.Context(), p)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	r.Flags(c)
	c.Flags().Uint32Var(&p.AS, "as", 0, "number of the router's autonomous system")
	c.Flags().Uint32Var(&p.LocalAS, "local-as", 0, "number of the nodes' autonomous system")
	c.Flags().StringSliceVar(&p.Nodes, "node", nil, "names of the nodes that connect to the router; if not given, all")
	c.Flags().BoolVar(&p.BFD, "bfd", true, "notice by BFD (RFC 5880) that the other side is gone")
	_ = c.MarkFlagRequired("as")                               // they exist
	_ = c.MarkFlagRequired("local-as")                         //
	_ = c.RegisterFlagCompletionFunc("node", completeNodes(r)) //
	return c
}

func newBGPList(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List the routers, and the sessions of this node with them",
		Example: "  fairlead cluster bgp ls\n  fairlead cluster bgp ls -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.Read(c.Context(), func(client *admin.Client) error {
				all, err := client.ClusterBGPSessions(c.Context())
				if err != nil {
					return err
				}
				if r.Output == "json" {
					return r.JSON(admin.ClusterBGPSessions{Sessions: all})
				}
				return r.Tabled(sessionRows(all))
			}, nil)
		},
	}
	r.Flags(c)
	return c
}

func newBGPRemove(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:     "rm ROUTER",
		Short:   "End the sessions of all nodes with a router",
		Example: "  fairlead cluster bgp rm 192.0.2.1",
		Args:    command.Arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			addr, err := parseRouter(args[0])
			if err != nil {
				return err
			}
			return change(r, c.Context(), func(client *admin.Client) (api.Result, error) {
				return client.RemoveBGPPeer(c.Context(), api.ClusterBGPPeerRequest{Address: addr})
			})
		},
		ValidArgsFunction: completeRouters(r),
	}
	r.Flags(c)
	return c
}

func parseRouter(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, command.Usage(fmt.Errorf("router %q: want the address of a router, e.g. 192.0.2.1", text))
	}
	return addr, nil
}

// sessionRows returns the table of routers.
func sessionRows(all []api.ClusterBGPSession) [][]string {
	rows := [][]string{{"ROUTER", "AS", "LOCAL AS", "NODES", "STATE", "SINCE", "BFD"}}
	for _, v := range all {
		since, nodes := "-", "all"
		if !v.Since.IsZero() {
			since = v.Since.Local().Format(time.DateTime)
		}
		if len(v.Nodes) > 0 {
			nodes = strings.Join(v.Nodes, " ")
		}
		rows = append(rows, []string{v.Address.String(), strconv.FormatUint(uint64(v.AS), 10),
			strconv.FormatUint(uint64(v.LocalAS), 10), nodes, command.OrDash(v.State), since,
			command.OrDash(v.BFDState)})
	}
	return rows
}

// completeRouters completes the first argument with the routers.
func completeRouters(r *command.Remote) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		all, err := admin.NewClient(r.Socket).ClusterBGPSessions(c.Context())
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, v := range all {
			names = append(names, v.Address.String())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
