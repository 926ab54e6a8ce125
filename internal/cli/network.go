package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/paths"

	"github.com/spf13/cobra"
)

func newNetwork(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "network",
		Short: "Define the networks that sandboxes are attached to",
		RunE: func(c *cobra.Command, _ []string) error {
			return usage(errors.Join(c.Help(), errors.New("name a command: create, ls, check or rm")))
		},
	}
	c.AddCommand(newNetworkCreate(a), newNetworkList(a), newNetworkCheck(a), newNetworkRemove(a))
	return c
}

// networkFlags are a network as it is typed.
type networkFlags struct {
	subnets, gateways, ranges, addresses []string
	peers                                []string
	driver, mode, filter, group, pkey    string
	network                              model.Network
}

func newNetworkCreate(a *app) *cobra.Command {
	r := &remote{app: a}
	var n networkFlags
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Define a network, or change one",
		Long: "Define a network. What it is made of comes to the host with its first attachment and\n" +
			"goes with its last. The same again is fine; other flags change the network and what\n" +
			"is attached to it. Drivers and what each promises: fairlead paths.",
		Example: "  fairlead network create web --driver bridge --subnet 172.30.0.0/24 --subnet fd00:30::/64\n" +
			"  fairlead network create lan --driver macvlan --parent eth0 --subnet 192.0.2.0/24 --gateway 192.0.2.1 --range 192.0.2.64/26\n" +
			"  fairlead network create lan --driver macvlan --parent eth0    # addresses by attach --dhcp or --address\n" +
			"  fairlead network create hosts --driver vxlan --vni 42 --subnet 172.31.0.0/24 --range 172.31.0.0/25 --peer 198.51.100.2=172.31.0.128/25",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			network, err := n.parse(args[0])
			if err != nil {
				return usage(err)
			}
			return r.call(c.Context(), func(client *admin.Client) error {
				result, err := client.CreateNetwork(c.Context(), network, r.dryRun)
				if err != nil {
					return err
				}
				return r.print(result, nil)
			})
		},
	}
	r.changes(c)
	n.flags(c)
	return c
}

func (n *networkFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&n.driver, "driver", string(model.DriverBridge), "how sandboxes are attached: "+strings.Join(attaching(), ", "))
	f.StringArrayVar(&n.subnets, "subnet", nil, "address range, at most one of each family (repeatable)")
	f.StringArrayVar(&n.gateways, "gateway", nil, "default gateway of the sandboxes in a subnet (repeatable)")
	f.StringArrayVar(&n.ranges, "range", nil, "part of a subnet that addresses are taken from (repeatable)")
	f.StringArrayVar(&n.addresses, "address", nil, "the host's own address in a subnet (repeatable)")
	f.StringVar(&n.network.Parent, "parent", "", "the host's link that macvlan and ipvlan branch from, or the device to hand over")
	f.StringVar(&n.mode, "mode", "", "macvlan: bridge, private, vepa, passthru; ipvlan: l2, l3, l3s")
	f.Uint16Var(&n.network.VLAN, "vlan", 0, "VLAN ID on the parent")
	f.StringVar(&n.pkey, "pkey", "", "partition key of an InfiniBand child, e.g. 0x8001")
	f.IntVar(&n.network.MTU, "mtu", 0, "MTU in bytes (default: what the driver finds right)")
	f.BoolVar(&n.network.Internal, "internal", false, "cut the network off from everything but this host")
	f.BoolVar(&n.network.Hairpin, "hairpin", false, "let a bridge port send frames back where they came from")
	f.StringVar(&n.filter, "filter", "", "whether frames on a bridge pass iptables: on, off (default: as the host does)")
	f.Uint32Var(&n.network.Overlay.VNI, "vni", 0, "VXLAN network identifier")
	f.Uint16Var(&n.network.Overlay.Port, "port", 0, "UDP port of the overlay on the wire (default 4789, encrypted 51820)")
	f.StringArrayVar(&n.network.Overlay.Underlays, "underlay", nil, "link or address of the host that carries the overlay (repeatable)")
	f.StringArrayVar(&n.peers, "peer", nil, "address of a host of the overlay, and its parts of the subnets: ADDRESS[=RANGE,...] (repeatable)")
	f.StringVar(&n.group, "group", "", "multicast group that finds the peers")
	f.BoolVar(&n.network.Overlay.Encrypt, "encrypt", false, "carry the overlay in WireGuard")
	f.StringVar(&n.network.Overlay.KeyFile, "key-file", "", "file with the secret that all hosts of the overlay share")
	for flag, values := range map[string][]string{
		"driver": attaching(), "mode": {"bridge", "private", "vepa", "passthru", "l2", "l3", "l3s"}, "filter": {"on", "off"},
	} {
		// It fails only for a flag that is not there or completes already.
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// attaching are the drivers that attach a sandbox to something.
func attaching() []string {
	var names []string
	for _, d := range paths.Drivers() {
		if d.Name() != model.DriverNone && d.Name() != model.DriverHost {
			names = append(names, string(d.Name()))
		}
	}
	return names
}

func (n *networkFlags) parse(name string) (model.Network, error) {
	network := n.network
	network.Name, network.Driver, network.Mode, network.Filter = name, model.Driver(n.driver), model.Mode(n.mode), model.Filter(n.filter)
	if !slices.Contains(attaching(), n.driver) {
		return network, fmt.Errorf("driver %q: want one of %s", n.driver, strings.Join(attaching(), ", "))
	}
	for _, text := range n.subnets {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return network, fmt.Errorf("subnet %q: want an address and a prefix length, e.g. 172.30.0.0/24", text)
		}
		network.Subnets = append(network.Subnets, model.Subnet{Prefix: prefix.Masked()})
	}
	err := errors.Join(
		within(network.Subnets, "gateway", n.gateways, func(s *model.Subnet, a netip.Addr) { s.Gateway = a }),
		within(network.Subnets, "address", n.addresses, func(s *model.Subnet, a netip.Addr) { s.Address = a }),
		n.parseRanges(network.Subnets), n.parseOverlay(&network.Overlay))
	if n.pkey != "" {
		key, bad := strconv.ParseUint(n.pkey, 0, 16)
		if bad != nil || key == 0 {
			err = errors.Join(err, fmt.Errorf("pkey %q: want a partition key of 16 bits, e.g. 0x8001", n.pkey))
		}
		network.PKey = uint16(key)
	}
	return network, err
}

// within gives each address to the subnet that it is in.
func within(subnets []model.Subnet, what string, texts []string, set func(*model.Subnet, netip.Addr)) error {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("%s %q: want an address", what, text)
		}
		i := slices.IndexFunc(subnets, func(s model.Subnet) bool { return s.Prefix.Contains(a) })
		if i < 0 {
			return fmt.Errorf("%s %s is in no --subnet", what, a)
		}
		set(&subnets[i], a)
	}
	return nil
}

func (n *networkFlags) parseRanges(subnets []model.Subnet) error {
	for _, text := range n.ranges {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("range %q: want an address and a prefix length, e.g. 172.30.0.128/25", text)
		}
		i := slices.IndexFunc(subnets, func(s model.Subnet) bool { return s.Prefix.Contains(p.Addr()) })
		if i < 0 {
			return fmt.Errorf("range %s is in no --subnet", p)
		}
		subnets[i].Range = p.Masked()
	}
	return nil
}

func (n *networkFlags) parseOverlay(o *model.Overlay) error {
	for _, text := range n.peers {
		peer, err := parsePeer(text)
		if err != nil {
			return err
		}
		o.Peers = append(o.Peers, peer)
	}
	if n.group != "" {
		var err error
		if o.Group, err = netip.ParseAddr(n.group); err != nil {
			return fmt.Errorf("group %q: want a multicast address", n.group)
		}
	}
	return nil
}

// parsePeer reads a host of an overlay, with its parts of the subnets or
// without: 192.0.2.2=10.9.0.128/25,fd00:9::200/120.
func parsePeer(text string) (model.Peer, error) {
	bad := fmt.Errorf("peer %q: want an address, or an address and the ranges that the host leases from, e.g. 192.0.2.2=10.9.0.128/25", text)
	address, ranges, ranged := strings.Cut(text, "=")
	a, err := netip.ParseAddr(address)
	if err != nil {
		return model.Peer{}, bad
	}
	peer := model.Peer{Address: a}
	if !ranged {
		return peer, nil
	}
	for r := range strings.SplitSeq(ranges, ",") {
		p, err := netip.ParsePrefix(r)
		if err != nil {
			return peer, bad
		}
		peer.Ranges = append(peer.Ranges, p.Masked())
	}
	return peer, nil
}

func newNetworkList(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List the networks",
		Example: "  fairlead network ls\n  fairlead network ls -o json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.call(c.Context(), func(client *admin.Client) error {
				networks, err := client.Networks(c.Context())
				if err != nil {
					return err
				}
				return r.printNetworks(networks)
			})
		},
	}
	r.flags(c)
	return c
}

func (r *remote) printNetworks(networks []model.Network) error {
	if r.output == "json" {
		return r.json(admin.Networks{Networks: networks})
	}
	rows := [][]string{{"NAME", "DRIVER", "SUBNETS", "PARENT"}}
	for _, n := range networks {
		var subnets []string
		for _, s := range n.Subnets {
			subnets = append(subnets, s.Prefix.String())
		}
		rows = append(rows, []string{n.Name, string(n.Driver), orDash(strings.Join(subnets, " ")), orDash(n.Parent)})
	}
	return r.tabled(rows)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newNetworkRemove(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:     "rm NAME…",
		Short:   "Forget networks that nothing is attached to",
		Example: "  fairlead network rm web",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				errs = append(errs, r.removeNetwork(c.Context(), name))
			}
			return errors.Join(errs...)
		},
		ValidArgsFunction: r.completeNetworks,
	}
	r.flags(c)
	return c
}

func (r *remote) removeNetwork(ctx context.Context, name string) error {
	return r.call(ctx, func(client *admin.Client) error {
		result, err := client.RemoveNetwork(ctx, name)
		if err != nil {
			return err
		}
		return r.print(result, func(daemon.View) string { return "" })
	})
}
