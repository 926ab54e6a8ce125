package file

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"go.yaml.in/yaml/v3"
)

// extension is the prefix of fields that are ignored, as in compose files. They can
// contain anchors.
const extension = "x-"

// document parses the top level of a document.
func (r *reader) document(n *yaml.Node) {
	attachments := 0
	known := []field{
		{"name", func(n *yaml.Node, path string) { r.word(n, path, r.name) }},
		{"networks", func(n *yaml.Node, path string) { r.named(n, path, "networks", r.network) }},
		{"attachments", func(n *yaml.Node, path string) {
			r.each(n, path, func(n *yaml.Node, _ string) {
				r.attachment(n, fmt.Sprintf("%s[%d]", path, attachments))
				attachments++
			})
		}},
		{"services", func(n *yaml.Node, path string) { r.named(n, path, "services", r.service) }},
		{"addresses", func(n *yaml.Node, path string) { r.each(n, path, r.clusterAddress) }},
		{"gateway", r.gateway},
		{"cluster", func(n *yaml.Node, path string) {
			r.object(n, path, []field{{"gateway", r.clusterGateway}})
		}},
	}
	fields(n, func(key, _ *yaml.Node) {
		if strings.HasPrefix(key.Value, extension) && !isKnown(known, key.Value) {
			known = append(known, field{key.Value, func(*yaml.Node, string) {}})
		}
	})
	r.object(n, "", known)
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

func (r *reader) network(key, value *yaml.Node, path string) {
	n := model.Network{Name: key.Value, Driver: model.DriverBridge}
	of := func(read func(*model.Network, string) error) func(string) error {
		return func(word string) error { return read(&n, word) }
	}
	r.object(value, path, []field{
		{"driver", r.parsed(func(word string) (err error) { n.Driver, err = syntax.Driver(word); return err })},
		{"subnet", r.words(of(syntax.Subnet))},
		{"gateway", r.words(of(syntax.SubnetGateway))},
		{"range", r.words(of(syntax.SubnetRange))},
		{"address", r.words(of(syntax.SubnetAddress))},
		{"parent", r.text(&n.Parent)},
		{"mode", r.text((*string)(&n.Mode))},
		{"vlan", number(r, 16, &n.VLAN)},
		{"pkey", r.parsed(func(word string) (err error) { n.PKey, err = syntax.PKey(word); return err })},
		{"mtu", number(r, 16, &n.MTU)},
		{"internal", r.flag(&n.Internal)},
		{"allow-overlap", r.flag(&n.AllowOverlap)},
		{"hairpin", r.flag(&n.Hairpin)},
		{"filter", r.parsed(func(word string) error { n.Filter = filter(word); return nil })},
		{"vni", number(r, 32, &n.Overlay.VNI)},
		{"port", number(r, 16, &n.Overlay.Port)},
		{"underlay", r.words(func(word string) error {
			n.Overlay.Underlays = append(n.Overlay.Underlays,
				word)
			return nil
		})},
		{"peer", r.peers(&n.Overlay)},
		{"group", r.parsed(func(word string) (err error) { n.Overlay.Group, err = syntax.Group(word); return err })},
		{"encrypt", r.flag(&n.Overlay.Encrypt)},
		{"key-file", r.text(&n.Overlay.KeyFile)},
	})
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

// peers parses the hosts of an overlay. Each is a word as for --peer, or an object.
func (r *reader) peers(o *model.Overlay) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		r.each(n, path, func(n *yaml.Node, path string) {
			var p model.Peer
			if n.Kind == yaml.MappingNode {
				r.object(n, path, []field{
					{"address", r.parsed(address(&p.Address))},
					{"range", r.words(func(word string) error {
						prefix, err := netip.ParsePrefix(word)
						p.Ranges = append(p.Ranges, prefix.Masked())
						return reworded(err, "range %q: want an address and a prefix length", word)
					})},
					{"further", r.words(addresses(&p.Further))},
					{"endpoint", func(n *yaml.Node, path string) {
						r.each(n, path, func(n *yaml.Node, path string) {
							var e model.PeerEndpoint
							r.object(n, path, []field{{"address", r.words(addresses(&e.Addresses))},
								{"mac", r.text(&e.MAC)}})
							p.Endpoints = append(p.Endpoints, e)
						})
					}},
				})
			} else {
				r.word(n, path, func(word string) (err error) { p, err = syntax.Peer(word); return err })
			}
			o.Peers = append(o.Peers, p)
		})
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
