package file

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/frontend/schema"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"go.yaml.in/yaml/v3"
)

// extension is the prefix of fields that are ignored, as in compose files. They can
// contain anchors.
const extension = "x-"

// document parses the top level of a document.
func (r *reader) document(n *yaml.Node) {
	known := r.documentFields()
	fields(n, func(key, _ *yaml.Node) {
		if strings.HasPrefix(key.Value, extension) && !isKnown(known, key.Value) {
			known = append(known, field{name: key.Value, value: value{read: func(*yaml.Node, string) {}}})
		}
	})
	r.object(n, "", known)
}

func (r *reader) documentFields() []field {
	attachments := 0
	attachment := func(n *yaml.Node, path string) {
		r.each(n, path, func(n *yaml.Node, _ string) {
			r.attachment(n, fmt.Sprintf("%s[%d]", path, attachments))
			attachments++
		})
	}
	return []field{
		field{name: "name", help: "name of the set of files; a host can have several sets",
			value: r.parsed(r.name, schema.Text)}.such("shop"),
		{name: "networks", help: "networks by name", value: value{read: func(n *yaml.Node, path string) {
			r.named(n, path, "networks", r.network)
		}, schema: func() schema.Schema { return schema.Map(objectOf(r.networkFields(&model.Network{}))) }}},
		{name: "attachments", help: "sandboxes on networks, with their published ports", value: value{read: attachment,
			schema: func() schema.Schema { return schema.List(attachmentSchema(r)) }}},
		{name: "services", help: "virtual services by name", value: value{read: func(n *yaml.Node, path string) {
			r.named(n, path, "services", r.service)
		}, schema: func() schema.Schema { return schema.Map(serviceSchema(r)) }}},
		{name: "addresses", help: "virtual addresses of the cluster, which apply adds and never removes",
			value: r.listed(value{read: r.clusterAddress,
				schema: func() schema.Schema { return r.addressSchema("address") }})},
		{name: "gateway", help: "HTTP gateway of the host, with the fields of Traefik's files",
			value: value{read: r.gateway, schema: traefik.Schema}},
		{name: "cluster", help: "objects of all hosts of the cluster", value: r.fields(func() []field {
			return []field{{name: "gateway", help: "objects of the gateways of all hosts",
				value: value{read: r.clusterGateway, schema: traefik.ClusterSchema}}}
		})},
	}
}

// name parses the name of the set. All files of a set must have the same name, or
// none.
func (r *reader) name(word string) error {
	if r.Spec.Set != "" && r.Spec.Set != word {
		return fmt.Errorf("%q: another file or document names the set %q: apply sets one by one", word, r.Spec.Set)
	}
	r.Spec.Set = word
	return model.ValidName(word)
}

// named parses the objects of a kind, which are declared by their names.
func (r *reader) named(n *yaml.Node, path, kind string, read func(key, value *yaml.Node, path string)) {
	if n = followed(n); n.Tag != "!!null" && n.Kind != yaml.MappingNode {
		r.mistake(n, path, "want %s by their names, each as NAME: and its fields", kind)
		return
	}
	seen := map[string]int{}
	fields(n, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		if first := seen[key.Value]; first != 0 {
			r.mistake(key, at, "it is declared twice, first in line %d: leave one out", first)
			return
		}
		seen[key.Value] = key.Line
		read(key, value, at)
	})
}

// networkFields are the fields of a network. Addresses are parsed after the subnets.
func (r *reader) networkFields(n *model.Network) []field {
	of := func(read func(*model.Network, string) error) value {
		return r.words(func(word string) error { return read(n, word) })
	}
	subnets := func(part func(model.Subnet) word) func() any {
		return func() any {
			return strs(slices.DeleteFunc(each(n.Subnets, part), func(w word) bool { return !w.IsValid() }))
		}
	}
	o := &n.Overlay
	return []field{
		{name: "driver", help: "driver that connects the sandboxes, default bridge", value: r.parsed(
			func(word string) (err error) { n.Driver, err = syntax.Driver(word); return err },
			chosen(syntax.Drivers()...)).writes(stored(&n.Driver))},
		field{name: "subnet", help: "address range, at most one per address family", value: of(syntax.Subnet).writes(
			subnets(func(s model.Subnet) word { return s.Prefix }))}.such("172.30.0.0/24",
			[]string{"172.30.0.0/24", "fd00:30::/64"}),
		field{name: "gateway", help: "default gateway of the sandboxes in a subnet",
			value: of(syntax.SubnetGateway).writes(
				subnets(func(s model.Subnet) word { return s.Gateway }))}.such("172.30.0.1"),
		field{name: "range", help: "part of a subnet from which addresses are assigned (default: the whole subnet)",
			value: of(syntax.SubnetRange).writes(
				subnets(func(s model.Subnet) word { return s.Range }))}.such("172.30.0.128/25"),
		field{name: "address", help: "the host's own address in a subnet",
			value: of(syntax.SubnetAddress).writes(
				subnets(func(s model.Subnet) word { return s.Address }))}.such("172.30.0.254"),
		field{name: "parent", help: "parent link of macvlan and ipvlan links on the host, or the device to move into " +
			"the sandbox", value: r.text(&n.Parent)}.such("eth0"),
		{name: "mode", help: "mode of macvlan (default bridge) or ipvlan (default l2)", value: r.parsed(
			func(word string) error { n.Mode = model.Mode(word); return nil },
			chosen(model.Modes()...)).writes(stored(&n.Mode))},
		{name: "vlan", help: "VLAN ID on the parent", value: number(r, 16, &n.VLAN)},
		field{name: "pkey", help: "partition key of an InfiniBand child", value: r.pkey(&n.PKey)}.such("0x8001"),
		{name: "mtu", help: "MTU in bytes (default: chosen by the driver)", value: number(r, 16, &n.MTU)},
		{name: "internal", help: "isolate the network from everything except this host", value: r.flag(&n.Internal)},
		{name: "allow-overlap", help: "allow a subnet that overlaps a subnet of the host's links or routes; by " +
			"default it is refused", value: r.flag(&n.AllowOverlap)},
		{name: "hairpin", help: "allow a bridge port to send frames back to the port that they came from",
			value: r.flag(&n.Hairpin)},
		{name: "filter", help: "whether frames on a bridge pass iptables (default: the host's setting)",
			value: r.parsed(func(word string) error { n.Filter = filter(word); return nil },
				filterSchema).writes(stored(&n.Filter))},
		{name: "outbound", help: "what translates connections to hosts outside: nft (default), ebpf past the " +
			"host's FORWARD rules, or auto: ebpf while no such rule would decide", value: r.parsed(func(word string) error { return syntax.Outbound(n, word) },
			chosen("nft", model.OutboundEBPF, model.OutboundAuto)).writes(stored(&n.Outbound))},
		{name: "flowtable", help: "forward established connections with other hosts through an nftables flowtable, " +
			"past the host's FORWARD rules (drivers bridge and routed)", value: r.flag(&n.Flowtable)},
		{name: "vni", help: "VXLAN network identifier", value: number(r, 32, &o.VNI)},
		{name: "port", help: "UDP port of the overlay's outer packets (default 4789, with encrypt 51820)",
			value: number(r, 16, &o.Port)},
		field{name: "underlay", help: "link or address of the host that carries the overlay's packets",
			value: r.texts(&o.Underlays)}.such("eth0"),
		{name: "peer", help: "other hosts of the overlay, with their ranges of the subnets", value: r.peers(o)},
		field{name: "group", help: "multicast group through which the hosts of the overlay find each other; not with " +
			"encrypt", value: r.parsed(func(word string) (err error) { o.Group, err = syntax.Group(word); return err },
			schema.Text).writes(shown(&o.Group))}.such("239.0.0.99", "ff05::99"),
		{name: "encrypt", help: "encrypt the overlay with WireGuard (default: not encrypted)", value: r.flag(&o.Encrypt)},
		field{name: "key-file", help: "absolute path of the file with the 32-byte secret that all hosts of the overlay " +
			"share, for encrypt", value: r.text(&o.KeyFile)}.such("/etc/fairlead/overlay.key"),
	}
}

func (r *reader) pkey(into *uint16) value {
	return r.parsed(func(word string) (err error) { *into, err = syntax.PKey(word); return err }, schema.Text).writes(
		func() any {
			if *into == 0 {
				return nil
			}
			return syntax.FormatPKey(*into)
		})
}

func (r *reader) network(key, value *yaml.Node, path string) {
	n := model.Network{Name: key.Value, Driver: model.DriverBridge}
	r.object(value, path, r.networkFields(&n))
	node := value
	if value.Kind != yaml.MappingNode || value.Line == key.Line {
		node = &yaml.Node{Kind: value.Kind, Content: value.Content, Line: key.Line}
	}
	if i := slices.IndexFunc(r.Spec.Networks, func(o model.Network) bool { return o.Name == n.Name }); i >= 0 {
		at := r.spots[fmt.Sprintf("networks[%d]", i)]
		r.mistake(key, path, "network %s is declared in %s:%d already: leave one out", n.Name, at.file, at.node.Line)
		return
	}
	node.Line = key.Line
	r.spots[fmt.Sprintf("networks[%d]", len(r.Spec.Networks))] = spot{r.file, node, path}
	r.Spec.Networks = append(r.Spec.Networks, n)
}

// filter parses on and off. It also accepts true and false, which YAML 1.1 made of
// them.
func filter(word string) model.Filter {
	switch word {
	case "true":
		return model.FilterOn
	case "false":
		return model.FilterOff
	}
	return model.Filter(word)
}

func filterSchema() schema.Schema {
	s := schema.OneOf(model.FilterOn, model.FilterOff)
	s.Enum = append(s.Enum, true, false)
	return s
}

// peers parses the hosts of an overlay. Each is a word as for --peer, or an object.
func (r *reader) peers(o *model.Overlay) value {
	return r.listed(value{read: func(n *yaml.Node, path string) {
		var p model.Peer
		if n.Kind == yaml.MappingNode {
			r.object(n, path, r.peerFields(&p))
		} else {
			r.word(n, path, func(word string) (err error) { p, err = syntax.Peer(word); return err })
		}
		o.Peers = append(o.Peers, p)
	}, schema: func() schema.Schema {
		return schema.Any(schema.Text().About("ADDRESS[=RANGE,…]", "198.51.100.2=172.31.0.128/25"),
			objectOf(r.peerFields(&model.Peer{})))
	}}).writes(func() any { return each(o.Peers, r.writtenPeer) })
}

// writtenPeer writes a peer as one word if that is possible, else as an object.
func (r *reader) writtenPeer(p model.Peer) any {
	if len(p.Further) == 0 && len(p.Endpoints) == 0 {
		return syntax.FormatPeer(p)
	}
	return writtenObject(r.peerFields(&p))
}

func (r *reader) peerFields(p *model.Peer) []field {
	endpoint := func(n *yaml.Node, path string) {
		var e model.PeerEndpoint
		r.object(n, path, r.peerEndpointFields(&e))
		p.Endpoints = append(p.Endpoints, e)
	}
	return []field{
		field{name: "address", help: "address of the host", value: r.address(&p.Address)}.such("198.51.100.2"),
		field{name: "range", help: "ranges of the subnets from which the host assigns addresses", value: r.words(
			func(word string) error {
				prefix, err := netip.ParsePrefix(word)
				p.Ranges = append(p.Ranges, prefix.Masked())
				return reworded(err, "range %q: want an address and a prefix length", word)
			}).writes(func() any { return strs(p.Ranges) })}.such("172.31.0.128/25"),
		{name: "further", help: "further addresses of the host", value: r.addresses(&p.Further)},
		{name: "endpoint", help: "known sandboxes on the host, which need no ARP or neighbour discovery", value: r.listed(
			value{read: endpoint, schema: func() schema.Schema {
				return objectOf(r.peerEndpointFields(&model.PeerEndpoint{}))
			}}).writes(func() any {
			return each(p.Endpoints, func(e model.PeerEndpoint) ordered {
				return writtenObject(r.peerEndpointFields(&e))
			})
		})},
	}
}

func (r *reader) peerEndpointFields(e *model.PeerEndpoint) []field {
	return []field{
		{name: "address", help: "addresses of the sandbox", value: r.addresses(&e.Addresses)},
		{name: "mac", help: "MAC address of the sandbox", value: r.text(&e.MAC)},
	}
}

// address returns a parser for an address.
func address(into *netip.Addr) func(string) error {
	return func(word string) (err error) {
		*into, err = netip.ParseAddr(word)
		return reworded(err, "address %q: want an address, e.g. 192.0.2.7", word)
	}
}

// addresses returns a parser that appends an address.
func addresses(into *[]netip.Addr) func(string) error {
	return func(word string) error {
		var a netip.Addr
		err := address(&a)(word)
		*into = append(*into, a)
		return err
	}
}

// reworded returns an error with the given text if err is not nil.
func reworded(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format, args...)
}
