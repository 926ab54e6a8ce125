package cluster

import (
	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newReaddress(a *command.App) *cobra.Command {
	c, _ := newChange(a, &cobra.Command{
		Use:   "readdress ADDRESS…",
		Short: "Change the addresses by which the other hosts reach this one",
		Long: "Change the addresses of this node, at most one per family. The arguments replace all of them, and this\n" +
			"host must have them. The API for other nodes, overlays and routes follow on all hosts; containers\n" +
			"and their connections stay.\n\n" +
			"A host without the address of its node is frozen: it holds no virtual address and leases no\n" +
			"addresses. This command ends that.",
		Example:           "  fairlead cluster readdress 192.0.2.33\n  fairlead cluster readdress 192.0.2.33 2001:db8::33",
		Args:              command.Arguments(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, admin.SetClusterHost, func(_ *cobra.Command, args []string) (api.ClusterHost, error) {
		addresses, err := parseAddresses("address", args)
		return api.ClusterHost{Addresses: addresses}, err
	})
	return c
}

func newTakeover(a *command.App) *cobra.Command {
	request := api.ClusterHost{Takeover: true}
	var addresses []string
	c, _ := newChange(a, &cobra.Command{
		Use:   "takeover --force",
		Short: "Make this host the node of which it has a copy",
		Long: "Make this host act as its node instead of another host that is down for good. The state of one of\n" +
			"them is a copy of the other's: a restored backup, a cloned virtual machine, or disks that were put\n" +
			"into another machine. Only one host acts as a node; the others are frozen.\n\n" +
			"You guarantee that the other host is down. If it runs, cut off from etcd, two hosts can answer for\n" +
			"a virtual address. A host that is alive is not replaced.",
		Example: "  fairlead cluster takeover --force\n  fairlead cluster takeover --force --address 192.0.2.33",
		Args:    command.Arguments(cobra.NoArgs),
	}, admin.SetClusterHost, func(*cobra.Command, []string) (_ api.ClusterHost, err error) {
		request.Addresses, err = parseAddresses("--address", addresses)
		return request, err
	})
	c.Flags().BoolVar(&request.Force, "force", false, "replace the other host: you guarantee that it is down")
	c.Flags().StringSliceVar(&addresses, "address", nil, "new addresses of the node, at most one per family; if not "+
		"given, they stay")
	return c
}
