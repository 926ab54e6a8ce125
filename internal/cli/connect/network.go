// Package connect has the commands that connect sandboxes to networks, publish
// their ports, and show both.
package connect

import (
	"context"
	"errors"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/syntax"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// NewNetwork returns the command `fairlead network`.
func NewNetwork(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "network",
		Short: "Define the networks that sandboxes are attached to",
	}
	c.AddCommand(newNetworkCreate(a), newNetworkList(a), newNetworkCheck(a), newNetworkRemove(a))
	return c
}

// networkFlags are the flags of `fairlead network create`.
type networkFlags struct {
	subnets, gateways, ranges, addresses []string
	peers                                []string
	driver, mode, filter, group, pkey    string
	outbound                             string
	network                              model.Network
	// cluster adds the network to the cluster. blockBits are the prefix lengths of blocks.
	cluster   bool
	blockBits []int
}

func newNetworkCreate(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var n networkFlags
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Define a network, or change one",
		Long: "Define a network. Its links are created with the first attachment and removed with the last.\n" +
			"Repeating the command changes nothing; other flags change the network and its attachments.\n" +
			"`fairlead paths` lists the drivers and what each promises.",
		Example: "  fairlead network create web --driver bridge --subnet 172.30.0.0/24 --subnet fd00:30::/64\n" +
			"  fairlead network create lan --driver macvlan --parent eth0 --subnet 192.0.2.0/24 --gateway 192.0.2.1 --range 192.0.2.64/26\n" +
			"  fairlead network create lan --driver macvlan --parent eth0    # addresses from attach --dhcp or " +
			"--address\n" +
			"  fairlead network create hosts --driver vxlan --vni 42 --subnet 172.31.0.0/24 --range 172.31.0.0/25 --peer 198.51.100.2=172.31.0.128/25\n" +
			"  fairlead network create shop --cluster --driver vxlan --subnet 10.9.0.0/16",
		Args: command.Arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			network, err := n.parse(args[0])
			if err != nil {
				return command.Usage(err)
			}
			if err := n.checkCluster(r.DryRun); err != nil {
				return command.Usage(err)
			}
			return r.Call(c.Context(), func(client *admin.Client) error {
				result, err := n.create(c.Context(), client, network, r.DryRun)
				if err != nil {
					return err
				}
				hint(r, network)
				return r.Print(result, nil)
			})
		},
	}
	r.Changes(c)
	n.flags(c)
	return c
}

// checkCluster checks the flags of the cluster's networks.
func (n *networkFlags) checkCluster(dry bool) error {
	switch {
	case !n.cluster && len(n.blockBits) > 0:
		return errors.New("--block-size: only networks of a cluster have blocks: add --cluster, or omit it")
	case n.cluster && dry:
		return errors.New("--dry-run: other hosts change too: omit it with --cluster")
	}
	return nil
}

// create creates the network on this host, or in the cluster.
func (n *networkFlags) create(ctx context.Context, client *admin.Client, network model.Network,
	dry bool) (api.Result, error) {
	if n.cluster {
		return admin.CreateClusterNetwork.Do(ctx, client,
			admin.ClusterNetworkRequest{Network: network, BlockBits: n.blockBits})
	}
	return admin.CreateNetwork.Do(ctx, client, admin.NetworkRequest{Network: network, DryRun: dry})
}

// hint prints a note if the host's firewall will not let the network's containers
// reach other hosts. The network exists whether or not the firewall can be read.
func hint(r *command.Remote, n model.Network) {
	host, err := kernel.Open("", kernel.Options{})
	if err != nil {
		return
	}
	defer host.Close()
	inside, err := host.Inspect().Inside("")
	if err != nil {
		return
	}
	var h doctor.Host
	h.Links, h.Routes = inside.Links, inside.Routes
	if h.Rules, _, err = host.NFT().Ruleset(); err != nil {
		return
	}
	if text := doctor.Hint(h, n); text != "" {
		r.Notes([]string{text})
	}
}

func (n *networkFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&n.driver, "driver", string(model.DriverBridge),
		"driver that connects the sandboxes: "+strings.Join(syntax.Drivers(), ", "))
	f.StringArrayVar(&n.subnets, "subnet", nil, "address range, at most one per address family (repeatable)")
	f.StringArrayVar(&n.gateways, "gateway", nil, "default gateway of the sandboxes in a subnet (repeatable)")
	f.StringArrayVar(&n.ranges, "range", nil, "part of a subnet from which addresses are assigned (repeatable; "+
		"default: the whole subnet)")
	f.StringArrayVar(&n.addresses, "address", nil, "the host's own address in a subnet (repeatable)")
	f.StringVar(&n.network.Parent, "parent", "", "parent link of macvlan and ipvlan links on the host, or the "+
		"device to move into the sandbox")
	f.StringVar(&n.mode, "mode", "", "mode for macvlan: bridge, private, vepa, passthru; for ipvlan: l2, l3, l3s")
	f.Uint16Var(&n.network.VLAN, "vlan", 0, "VLAN ID on the parent")
	f.StringVar(&n.pkey, "pkey", "", "partition key of an InfiniBand child, e.g. 0x8001")
	f.IntVar(&n.network.MTU, "mtu", 0, "MTU in bytes (default: chosen by the driver)")
	f.BoolVar(&n.network.Internal, "internal", false, "isolate the network from everything except this host")
	f.BoolVar(&n.network.AllowOverlap, "allow-overlap", false, "allow a subnet that overlaps a subnet of the host's "+
		"links or routes; by default it is refused")
	f.BoolVar(&n.network.Hairpin, "hairpin", false, "allow a bridge port to send frames back to the port that they "+
		"came from")
	f.StringVar(&n.filter, "filter", "", "whether frames on a bridge pass iptables: on, off (default: the host's "+
		"setting)")
	f.StringVar(&n.outbound, "outbound", "nft", "what translates connections to hosts outside: nft, ebpf past "+
		"the host's FORWARD rules, or auto: ebpf while no such rule would decide (driver bridge, IPv4)")
	f.BoolVar(&n.network.Flowtable, "flowtable", false, "forward established connections with other hosts through an "+
		"nftables flowtable, past the host's FORWARD rules (drivers bridge and routed)")
	f.Uint32Var(&n.network.Overlay.VNI, "vni", 0, "VXLAN network identifier")
	f.Uint16Var(&n.network.Overlay.Port, "port", 0, "UDP port of the overlay's outer packets (default 4789, with "+
		"--encrypt 51820)")
	f.StringArrayVar(&n.network.Overlay.Underlays, "underlay", nil, "link or address of the host that carries the "+
		"overlay's packets (repeatable)")
	f.StringArrayVar(&n.peers, "peer", nil, "address of another host of the overlay, and its ranges of the subnets: "+
		"ADDRESS[=RANGE,...] (repeatable)")
	f.StringVar(&n.group, "group", "", "multicast group through which the hosts of the overlay find each other; not "+
		"with --encrypt")
	f.BoolVar(&n.network.Overlay.Encrypt, "encrypt", false, "encrypt the overlay with WireGuard (default: not "+
		"encrypted)")
	f.StringVar(&n.network.Overlay.KeyFile, "key-file", "", "absolute path of the file with the 32-byte secret that "+
		"all hosts of the overlay share, for --encrypt")
	f.BoolVar(&n.cluster, "cluster", false, "create the network on all hosts of the cluster, with driver vxlan or "+
		"routed (default: on this host)")
	f.IntSliceVar(&n.blockBits, "block-size", nil, "with --cluster: prefix length of the block of addresses that "+
		"each host claims, in the order of the subnets (default: 64 addresses)")
	for flag, values := range map[string][]string{
		"driver": syntax.Drivers(), "mode": {"bridge", "private", "vepa", "passthru", "l2", "l3", "l3s"},
		"filter": {"on", "off"}, "outbound": {"nft", "ebpf", "auto"},
	} {
		// It fails only for an unknown flag or one that has a completion already.
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func (n *networkFlags) parse(name string) (model.Network, error) {
	network := n.network
	network.Name, network.Mode, network.Filter = name, model.Mode(n.mode), model.Filter(n.filter)
	var err error
	if network.Driver, err = syntax.Driver(n.driver); err != nil {
		return network, err
	}
	for _, words := range []struct {
		values []string
		read   func(*model.Network, string) error
	}{{n.subnets, syntax.Subnet}, {n.gateways, syntax.SubnetGateway}, {n.addresses, syntax.SubnetAddress},
		{n.ranges, syntax.SubnetRange}, {n.peers, addPeer}} {
		for _, word := range words.values {
			if err := words.read(&network, word); err != nil {
				return network, err
			}
		}
	}
	if err := syntax.Outbound(&network, n.outbound); err != nil {
		return network, err
	}
	if n.pkey != "" {
		if network.PKey, err = syntax.PKey(n.pkey); err != nil {
			return network, err
		}
	}
	network.Overlay.Group, err = syntax.Group(n.group)
	return network, err
}

func addPeer(n *model.Network, word string) error {
	peer, err := syntax.Peer(word)
	n.Overlay.Peers = append(n.Overlay.Peers, peer)
	return err
}

func newNetworkList(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List the networks",
		Example: "  fairlead network ls\n  fairlead network ls -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return command.Show(c.Context(), r, admin.ListNetworks.Do, func(networks admin.Networks) error {
				return printNetworks(r, c.Context(), networks, "available")
			}, func(w model.Desired) error {
				return printNetworks(r, c.Context(), admin.Networks{Networks: w.Networks}, "")
			})
		},
	}
	r.Flags(c)
	return c
}

// printNetworks prints the networks. state is that of networks which are not unavailable; empty means unknown.
func printNetworks(r *command.Remote, ctx context.Context, all admin.Networks, state string) error {
	if r.Output == "json" {
		return r.JSON(all)
	}
	var origins []model.Origin
	for _, n := range all.Networks {
		origins = append(origins, n.Origin)
	}
	names := command.AskDocker(ctx, origins)
	rows := [][]string{{"NAME", "DRIVER", "SUBNETS", "ADDRESS", "PARENT", "STATE"}}
	for _, n := range all.Networks {
		row := wording.NetworkRow(n, all.State(n.Name, state))
		row[0] = names.Network(n.Name)
		rows = append(rows, row)
	}
	return r.Tabled(rows)
}

func newNetworkRemove(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var cluster bool
	c := &cobra.Command{
		Use:     "rm NAME…",
		Short:   "Remove networks that have no attachments",
		Example: "  fairlead network rm web\n  fairlead network rm shop --cluster",
		Args:    command.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				errs = append(errs, removeNetwork(r, c.Context(), name, cluster))
			}
			return errors.Join(errs...)
		},
		ValidArgsFunction: r.CompleteNetworks(),
	}
	r.Flags(c)
	c.Flags().BoolVar(&cluster, "cluster", false, "remove the networks from the cluster; a host keeps them while it has "+
		"attachments to them (default: only from this host)")
	return c
}

func removeNetwork(r *command.Remote, ctx context.Context, name string, cluster bool) error {
	remove := admin.RemoveNetwork
	if cluster {
		remove = admin.RemoveClusterNetwork
	}
	return command.Do(ctx, r, remove, admin.NetworkName{Name: name}, r.Printing(func(api.View) string { return "" }))
}
