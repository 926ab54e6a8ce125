package file

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/promise"
	"fairlead/internal/syntax"

	"go.yaml.in/yaml/v3"
)

func (r *reader) attachment(n *yaml.Node, path string) {
	var a api.Declared
	of := func(read func(*model.Endpoint, string) error) func(string) error {
		return func(word string) error { return read(&a.Endpoint, word) }
	}
	before, spec := len(r.mistakes), fmt.Sprintf("attachments[%d]", len(r.Spec.Attachments))
	r.object(n, path, []field{
		{"sandbox", r.text(&a.Sandbox)},
		{"network", r.text(&a.Network)},
		{"device", r.text(&a.Device)},
		{"pkey", r.parsed(func(word string) (err error) { a.PKey, err = syntax.PKey(word); return err })},
		{"name", r.text(&a.Name)},
		{"interface", r.text(&a.Interface)},
		{"address", r.words(of(syntax.Address))},
		{"gateway", r.words(of(syntax.Gateway))},
		{"route", r.routes(&a.Endpoint)},
		{"mac", r.text(&a.MAC)},
		{"rate-out", r.rate(&a.Limit.Out)},
		{"rate-in", r.rate(&a.Limit.In)},
		{"dhcp", r.flag(&a.DHCP)},
		{"publish", r.publishes(&a, spec)},
	})
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

func (r *reader) rate(into *uint64) func(*yaml.Node, string) {
	return r.parsed(func(word string) (err error) { *into, err = syntax.Rate(word); return err })
}

// routes parses routes. Each is a word as for --route, or an object.
func (r *reader) routes(e *model.Endpoint) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		r.each(n, path, func(n *yaml.Node, path string) {
			var route model.Route
			if n.Kind == yaml.MappingNode {
				r.object(n, path, []field{
					{"to", r.parsed(func(word string) (err error) {
						route.To, err = netip.ParsePrefix(word)
						return reworded(err, "to %q: want an address and a prefix length, e.g. 10.0.0.0/8", word)
					})},
					{"via", r.parsed(address(&route.Via))},
				})
			} else {
				r.word(n, path, func(word string) (err error) { route, err = syntax.Route(word); return err })
			}
			e.Routes = append(e.Routes, route)
		})
	}
}

// publishes parses publishes. Each is a word as for `fairlead publish`, or an object
// with the fields of compose files.
func (r *reader) publishes(a *api.Declared, spec string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		r.each(n, path, func(n *yaml.Node, path string) {
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
		})
	}
}

func (r *reader) publish(n *yaml.Node, path string, p *model.Publish) {
	before := len(r.mistakes)
	ports := func(into *model.PortRange) func(*yaml.Node, string) {
		return r.parsed(func(word string) (err error) { *into, err = model.ParsePortRange(word); return err })
	}
	r.object(n, path, []field{
		{"published", ports(&p.HostPorts)},
		{"target", ports(&p.Ports)},
		{"host_ip", r.parsed(address(&p.HostAddr))},
		{"protocol", r.text((*string)(&p.Proto))},
		{"via", r.parsed(func(word string) (err error) { p.Via, err = syntax.Via(word); return err })},
		{"promise", r.words(func(word string) error {
			_, err := promise.Named([]string{word})
			p.Promises = append(p.Promises, word)
			return err
		})},
		{"proxy-protocol", number(r, 2, &p.ProxyProtocol)},
		{"reset", r.flag(&p.Reset)},
	})
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
