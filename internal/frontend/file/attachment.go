package file

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/schema"
	"fairlead/internal/model"
	"fairlead/internal/promise"
	"fairlead/internal/syntax"

	"go.yaml.in/yaml/v3"
)

// attachmentFields are the fields of an attachment. spec is its part of the Spec.
func (r *reader) attachmentFields(a *api.Declared, spec string) []field {
	of := func(read func(*model.Endpoint, string) error) value {
		return r.words(func(word string) error { return read(&a.Endpoint, word) })
	}
	return []field{
		field{name: "sandbox", help: "sandbox to attach; with its kind, it may be missing when the file is applied",
			value: r.text(&a.Sandbox)}.such("container:shop", "netns:blue", "/run/netns/blue"),
		field{name: "network", help: "network to attach the sandbox to", value: r.text(&a.Network)}.such("web"),
		field{name: "device", help: "device to move into the sandbox instead of a network: its name, or its PCI " +
			"address", value: r.text(&a.Device)}.such("0000:3b:02.1"),
		field{name: "pkey", help: "move a child of the InfiniBand device with this partition key, instead of the device",
			value: r.pkey(&a.PKey)}.such("0x8001"),
		{name: "name", help: "name of the attachment (default: the sandbox's name)", value: r.text(&a.Name)},
		field{name: "interface", help: "name of the interface in the sandbox (default: the first of eth0, eth1 … that " +
			"is free)", value: r.text(&a.Interface)}.such("eth0"),
		field{name: "address", help: "addresses of the sandbox, with a prefix length if the network has no subnet " +
			"(default: the next free one)", value: of(syntax.Address).writes(func() any {
			return append(strs(a.Addresses), strs(a.Prefixes)...)
		})}.such("172.30.0.7", "192.0.2.7/24"),
		field{name: "gateway", help: "default gateways, or none (default: the network's, unless the sandbox has one)",
			value: of(syntax.Gateway).writes(func() any { return gateways(a.Endpoint) })}.such("172.30.0.1",
			syntax.NoGateway),
		{name: "route", help: "additional routes", value: r.routes(&a.Endpoint)},
		field{name: "mac", help: "MAC address of the interface in the sandbox", value: r.text(&a.MAC)}.such(
			"02:42:ac:11:00:02"),
		field{name: "rate-out", help: "maximum rate at which the sandbox sends (default: unlimited)",
			value: r.rate(&a.Limit.Out)}.such("100mbit"),
		field{name: "rate-in", help: "maximum rate at which the sandbox receives (default: unlimited)",
			value: r.rate(&a.Limit.In)}.such("100mbit"),
		{name: "dhcp", help: "get the address from a DHCP server of the network, and renew its lease",
			value: r.flag(&a.DHCP)},
		{name: "publish", help: "ports of the sandbox to make reachable at the host", value: r.publishes(a, spec)},
	}
}

func attachmentSchema(r *reader) schema.Schema {
	s := objectOf(r.attachmentFields(&api.Declared{}, ""))
	s.Required = []string{"sandbox"}
	s.OneOf = []schema.Schema{{Required: []string{"network"}}, {Required: []string{"device"}}}
	return s
}

func (r *reader) attachment(n *yaml.Node, path string) {
	var a api.Declared
	before, spec := len(r.mistakes), fmt.Sprintf("attachments[%d]", len(r.Spec.Attachments))
	r.object(n, path, r.attachmentFields(&a, spec))
	switch {
	case len(r.mistakes) > before: // further mistakes may be consequences
	case a.Sandbox == "":
		r.mistake(n, path, "sandbox: name the sandbox, e.g. sandbox: container:shop")
	case (a.Network == "") == (a.Device == ""):
		r.mistake(n, path, "want a network or a device, and not both: name one of them")
	case a.PKey != 0 && a.Device == "":
		r.mistake(n, path, "pkey: it needs a device: name the InfiniBand device, or leave pkey out")
	case a.DHCP && len(a.Addresses)+len(a.Prefixes) > 0:
		r.mistake(n, path, "dhcp and address: want only one of them")
	}
	r.spots[spec] = spot{r.file, n, path}
	r.Spec.Attachments = append(r.Spec.Attachments, a)
}

// gateways writes the default gateways of a sandbox.
func gateways(e model.Endpoint) []string {
	if e.NoDefault {
		return []string{syntax.NoGateway}
	}
	return strs(e.Gateways)
}

func (r *reader) rate(into *uint64) value {
	return r.parsed(func(word string) (err error) { *into, err = syntax.Rate(word); return err }, schema.Text).writes(
		func() any { return syntax.FormatRate(*into) })
}

// routes parses routes. Each is a word as for --route, or an object.
func (r *reader) routes(e *model.Endpoint) value {
	return r.listed(value{read: func(n *yaml.Node, path string) {
		var route model.Route
		if n.Kind == yaml.MappingNode {
			r.object(n, path, r.routeFields(&route))
		} else {
			r.word(n, path, func(word string) (err error) { route, err = syntax.Route(word); return err })
		}
		e.Routes = append(e.Routes, route)
	}, schema: func() schema.Schema {
		return schema.Any(schema.Text().About("RANGE[,via=ADDRESS]", "10.0.0.0/8,via=172.30.0.254"),
			objectOf(r.routeFields(&model.Route{})))
	}}).writes(func() any { return each(e.Routes, syntax.FormatRoute) })
}

func (r *reader) routeFields(route *model.Route) []field {
	to := func(word string) (err error) {
		route.To, err = netip.ParsePrefix(word)
		return reworded(err, "to %q: want an address and a prefix length, e.g. 10.0.0.0/8", word)
	}
	return []field{
		field{name: "to", help: "destination", value: r.parsed(to, schema.Text)}.such("10.0.0.0/8"),
		field{name: "via", help: "next hop (default: directly on the link)",
			value: r.address(&route.Via)}.such("172.30.0.254"),
	}
}

// publishes parses publishes. Each is a word as for `fairlead publish`, or an object
// with the fields of compose files.
func (r *reader) publishes(a *api.Declared, spec string) value {
	return r.listed(value{read: func(n *yaml.Node, path string) {
		p := model.Publish{Via: model.ViaAuto, Proto: model.TCP}
		if n.Kind == yaml.MappingNode {
			r.publish(n, path, &p)
		} else {
			r.word(n, path, func(word string) (err error) {
				p, err = syntax.Publish(word)
				p.Via = model.ViaAuto
				return err
			})
		}
		r.spots[fmt.Sprintf("%s.publishes[%d]", spec, len(a.Publishes))] = spot{r.file, n, path}
		a.Publishes = append(a.Publishes, p)
	}, schema: func() schema.Schema {
		object := objectOf(r.publishFields(&model.Publish{}))
		object.Required = []string{"published", "target"}
		word := schema.Schema{Type: []string{"string"}}
		return schema.Any(word.About("[ADDRESS:]HOST:CONTAINER[/tcp|/udp]", "8080:80", "127.0.0.1:5353:53/udp"), object)
	}}).writes(func() any { return each(a.Publishes, r.writtenPublish) })
}

func (r *reader) publishFields(p *model.Publish) []field {
	ports := func(into *model.PortRange) value {
		return r.parsed(func(word string) (err error) { *into, err = model.ParsePortRange(word); return err },
			schema.Ports).writes(func() any { return into.String() })
	}
	return []field{
		field{name: "published", help: "port or range of the host", value: ports(&p.HostPorts)}.such(8080, "9000-9010"),
		field{name: "target", help: "port or range of the sandbox", value: ports(&p.Ports)}.such(80, "8000-8010"),
		field{name: "host_ip", help: "address of the host (default: all)",
			value: r.address(&p.HostAddr)}.such("127.0.0.1"),
		{name: "protocol", help: "protocol, default tcp", value: r.protocol(&p.Proto)},
		{name: "via", help: "publish mode, default auto", value: r.parsed(
			func(word string) (err error) { p.Via, err = syntax.Via(word); return err },
			chosen(syntax.Vias...)).writes(stored(&p.Via))},
		{name: "promise", help: "promises that the mode must keep", value: r.listed(r.parsed(func(word string) error {
			_, err := promise.Named([]string{word})
			p.Promises = append(p.Promises, word)
			return err
		}, chosen(promise.Publish()...))).writes(stored(&p.Promises))},
		{name: "proxy-protocol", help: "version of the PROXY header that the workload gets: 1 or 2 (default: none)",
			value: number(r, 2, &p.ProxyProtocol)},
		{name: "reset", help: "end the TCP connections with a reset when the publish is removed", value: r.flag(&p.Reset)},
	}
}

func (r *reader) protocol(into *model.Proto) value {
	return r.parsed(func(word string) error { *into = model.Proto(word); return nil },
		chosen(model.TCP, model.UDP)).writes(stored(into))
}

func (r *reader) publish(n *yaml.Node, path string, p *model.Publish) {
	before := len(r.mistakes)
	r.object(n, path, r.publishFields(p))
	var missing []string
	if p.HostPorts.First == 0 {
		missing = append(missing, "published, the host port")
	}
	if p.Ports.First == 0 {
		missing = append(missing, "target, the container port")
	}
	if len(missing) > 0 && len(r.mistakes) == before {
		r.mistake(n, path, "missing %s: write e.g. {published: 8080, target: 80}", strings.Join(missing, " and "))
	}
}

// writtenPublish writes a publish as one word if that is possible, else as an object.
func (r *reader) writtenPublish(p model.Publish) any {
	if p.Via == model.ViaAuto && len(p.Promises) == 0 && p.ProxyProtocol == 0 && !p.Reset {
		return syntax.FormatPublish(p)
	}
	return writtenObject(r.publishFields(&p))
}
