package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/cluster/addresses"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

func newAddress(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "address",
		Short: "Virtual addresses: each is held by one node at a time",
	}
	c.AddCommand(newAddressAdd(a), newAddressList(a), newAddressMove(a), newAddressRemove(a),
		newAddressClaim(a))
	return c
}

func newAddressAdd(a *command.App) *cobra.Command {
	var spec api.ClusterAddressSpec
	c, r := newChange(a, &cobra.Command{
		Use:   "add ADDRESS/LENGTH",
		Short: "Add a virtual address to the cluster",
		Long: "Add a virtual address. One of its candidates gets it on a link, and answers for it on the LAN. If\n" +
			"that node fails, another one takes the address after about 1.1 times the hold time. Two nodes\n" +
			"never answer at the same time, because the kernel of the holder stops answering when its last\n" +
			"renewal has ended.\n\n" +
			"With a shorter hold time the address moves faster, and the holder writes to etcd more often:\n" +
			"four times in each hold time. To change an address, remove it and add it again.",
		Example: "  fairlead cluster address add 192.0.2.10/24\n" +
			"  fairlead cluster address add 192.0.2.10/24 --hold 1s --candidate host1,host2\n" +
			"  fairlead cluster address add 2001:db8::10/64 --link eth1",
		Args:              command.Arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, admin.AddAddress, func(c *cobra.Command, args []string) (_ api.ClusterAddressSpec, err error) {
		if spec.Address, err = netip.ParsePrefix(args[0]); err != nil {
			return spec, command.Usage(fmt.Errorf("address %q: want an address with the length of its subnet, e.g. "+
				"192.0.2.10/24", args[0]))
		}
		if spec.Announce != "" && !c.Flags().Changed("hold") {
			spec.Hold = 0
		}
		return spec, nil
	})
	c.Flags().DurationVar(&spec.Hold, "hold", addresses.DefaultHold, "for how long a renewal by the holder is valid, "+
		"200ms to 10s")
	c.Flags().StringSliceVar(&spec.Candidates, "candidate", nil, "names of the nodes that may hold the address; if "+
		"not given, all")
	c.Flags().StringVar(&spec.Link, "link", "", "link that gets the address on each host; if not given, the link "+
		"with an address in the same subnet")
	c.Flags().StringVar(&spec.Announce, "announce", "", "bgp: all candidates have the address at the same time, and "+
		"announce it to the routers\nof `fairlead cluster bgp`; if not given, one node holds it")
	_ = c.RegisterFlagCompletionFunc("candidate", completeNodes(r)) // it exists
	return c
}

func newAddressList(a *command.App) *cobra.Command {
	return newList(a, &cobra.Command{
		Use:   "ls",
		Short: "List the virtual addresses and their holders",
		Long: "List the virtual addresses. LEASE is the longest time for which the holder answers without another\n" +
			"renewal, as this host sees it. While etcd does not answer, the holder can keep the address with\n" +
			"the promises of the other candidates, which are not shown here.",
		Example: "  fairlead cluster address ls\n  fairlead cluster address ls -o json",
	}, admin.ListAddresses, func(all admin.ClusterAddresses) [][]string { return wording.AddressRows(all.Addresses) })
}

func newAddressMove(a *command.App) *cobra.Command {
	c, r := newChange(a, &cobra.Command{
		Use:   "move ADDRESS [NODE]",
		Short: "Move a virtual address to another node",
		Long: "Move a virtual address to a node, or to any other candidate. The holder stops answering before the\n" +
			"other node begins, which takes some tens of milliseconds. The command waits for that.",
		Example: "  fairlead cluster address move 192.0.2.10 host2\n  fairlead cluster address move 192.0.2.10",
		Args:    command.Arguments(cobra.RangeArgs(1, 2)),
	}, admin.MoveAddress, func(_ *cobra.Command, args []string) (api.ClusterAddressRequest, error) {
		request, err := addressRequest(args[0])
		if len(args) > 1 {
			request.Node = args[1]
		}
		return request, err
	})
	c.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		if len(args) == 1 {
			return completeNodes(r)(c, nil, word)
		}
		return completeAddresses(r)(c, args, word)
	}
	return c
}

func newAddressRemove(a *command.App) *cobra.Command {
	var force bool
	c, r := newChange(a, &cobra.Command{
		Use:   "rm ADDRESS",
		Short: "Remove a virtual address from the cluster",
		Long: "Remove a virtual address. The command waits until its holder no longer answers for it, or, if the\n" +
			"holder does not run, until its lease has ended.",
		Example: "  fairlead cluster address rm 192.0.2.10\n  fairlead cluster address rm 192.0.2.10 --force",
		Args:    command.Arguments(cobra.ExactArgs(1)),
	}, admin.RemoveAddress, func(_ *cobra.Command, args []string) (api.ClusterAddressRequest, error) {
		request, err := addressRequest(args[0])
		request.Force = force
		return request, err
	})
	c.ValidArgsFunction = completeAddresses(r)
	c.Flags().BoolVar(&force, "force", false, "do not wait for a holder that is not alive: you guarantee that it is "+
		"down")
	return c
}

func newAddressClaim(a *command.App) *cobra.Command {
	var force bool
	c, r := newChange(a, &cobra.Command{
		Use:   "claim ADDRESS --force",
		Short: "Make this host take an address whose holder is down for good",
		Long: "Make this host take a virtual address after its lease has ended, although the holder's record does\n" +
			"not list this node. That is needed only if the holder and all nodes that it lists are down, for\n" +
			"example because this node joined while the holder could not reach etcd.\n\n" +
			"You guarantee that the earlier holder is down. If it runs, cut off from etcd and from this host,\n" +
			"two hosts answer for the address.",
		Example: "  fairlead cluster address claim 192.0.2.10 --force",
		Args:    command.Arguments(cobra.ExactArgs(1)),
	}, admin.ClaimAddress, func(_ *cobra.Command, args []string) (api.ClusterAddressRequest, error) {
		request, err := addressRequest(args[0])
		request.Force = force
		return request, err
	})
	c.ValidArgsFunction = completeAddresses(r)
	c.Flags().BoolVar(&force, "force", false, "claim it: you guarantee that the earlier holder is down")
	return c
}

// addressRequest parses an address, also one with the length of its subnet.
func addressRequest(text string) (r api.ClusterAddressRequest, err error) {
	alone, _, _ := strings.Cut(text, "/")
	if r.Address, err = netip.ParseAddr(alone); err != nil {
		return r, command.Usage(fmt.Errorf("address %q: want a virtual address, e.g. 192.0.2.10", text))
	}
	return r, nil
}

// completeAddresses completes the first argument with the virtual addresses.
func completeAddresses(r *command.Remote) cobra.CompletionFunc {
	return command.CompleteFirst(r, func(ctx context.Context, c *admin.Client) ([]api.ClusterAddress, error) {
		all, err := admin.ListAddresses.Do(ctx, c)
		return all.Addresses, err
	}, func(v api.ClusterAddress) string { return v.Address.Addr().String() })
}
