package cluster

import (
	"context"
	"fmt"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/wording"

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
	var p api.ClusterBGPPeer
	c, r := newChange(a, &cobra.Command{
		Use:   "add ROUTER --as NUMBER --local-as NUMBER",
		Short: "Announce the cluster's addresses to a router",
		Long: "Connect the nodes to a router by BGP. They announce the addresses that were added with `fairlead\n" +
			"cluster address add --announce bgp`, and accept no routes. The router must expect each node as a\n" +
			"neighbour. With BFD, the router notices a node that is gone within a second, without it within 9\n" +
			"seconds.",
		Example: "  fairlead cluster bgp add 192.0.2.1 --as 64512 --local-as 64513\n" +
			"  fairlead cluster bgp add 192.0.2.1 --as 64512 --local-as 64513 --node host1,host2 --bfd=false",
		Args:              command.Arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, admin.AddBGPPeer, func(_ *cobra.Command, args []string) (_ api.ClusterBGPPeer, err error) {
		p.Address, err = parseRouter(args[0])
		return p, err
	})
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
	return newList(a, &cobra.Command{
		Use:     "ls",
		Short:   "List the routers, and the sessions of this node with them",
		Example: "  fairlead cluster bgp ls\n  fairlead cluster bgp ls -o json",
	}, admin.ListBGPSessions, func(all admin.ClusterBGPSessions) [][]string {
		return wording.SessionRows(all.Sessions)
	})
}

func newBGPRemove(a *command.App) *cobra.Command {
	c, r := newChange(a, &cobra.Command{
		Use:     "rm ROUTER",
		Short:   "End the sessions of all nodes with a router",
		Example: "  fairlead cluster bgp rm 192.0.2.1",
		Args:    command.Arguments(cobra.ExactArgs(1)),
	}, admin.RemoveBGPPeer, func(_ *cobra.Command, args []string) (api.ClusterBGPPeerRequest, error) {
		addr, err := parseRouter(args[0])
		return api.ClusterBGPPeerRequest{Address: addr}, err
	})
	c.ValidArgsFunction = completeRouters(r)
	return c
}

func parseRouter(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, command.Usage(fmt.Errorf("router %q: want the address of a router, e.g. 192.0.2.1", text))
	}
	return addr, nil
}

// completeRouters completes the first argument with the routers.
func completeRouters(r *command.Remote) cobra.CompletionFunc {
	return command.CompleteFirst(r, func(ctx context.Context, c *admin.Client) ([]api.ClusterBGPSession, error) {
		all, err := admin.ListBGPSessions.Do(ctx, c)
		return all.Sessions, err
	}, func(v api.ClusterBGPSession) string { return v.Address.String() })
}
