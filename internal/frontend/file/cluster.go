package file

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/schema"

	"go.yaml.in/yaml/v3"
)

// clusterAddress parses an element of addresses: a word, or an object with the field address.
func (r *reader) clusterAddress(n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		var spec api.ClusterAddressSpec
		before := len(r.mistakes)
		r.word(n, path, prefix(&spec.Address))
		if len(r.mistakes) == before {
			r.declare(spec, n, path)
		}
		return
	}
	r.virtual(n, path, "address")
}

// serviceAddress parses an address of a service: a word, or an object with the field virtual, which declares
// an address of the cluster.
func (r *reader) serviceAddress(into *[]netip.Addr) value {
	return r.listed(value{read: func(n *yaml.Node, path string) {
		if n.Kind != yaml.MappingNode {
			r.word(n, path, addresses(into))
		} else if at, ok := r.virtual(n, path, "virtual"); ok {
			*into = append(*into, at)
		}
	}, schema: func() schema.Schema { return r.addressSchema("virtual") }}).writes(
		func() any { return oneOrAll(strs(*into)) })
}

// virtualFields are the fields of an address of the cluster. name is that of the field with the address.
func (r *reader) virtualFields(spec *api.ClusterAddressSpec, name string) []field {
	hold := func(word string) (err error) {
		if spec.Hold, err = time.ParseDuration(word); err != nil {
			return fmt.Errorf("%q: want a time, e.g. 1s", word)
		}
		return nil
	}
	written := func() any {
		if spec.Hold == 0 {
			return nil
		}
		return spec.Hold.String()
	}
	return []field{
		field{name: name, help: "address with the length of its subnet", value: r.parsed(prefix(&spec.Address),
			schema.Text).writes(shown(&spec.Address))}.such("192.0.2.10/24"),
		field{name: "link", help: "link that gets the address on each host (default: the link with an address in the same subnet)",
			value: r.text(&spec.Link)}.such("eth0"),
		field{name: "hold", help: "for how long a renewal by the holder is valid", value: r.parsed(hold,
			schema.Text).writes(written)}.such("1s"),
		field{name: "candidates", help: "nodes that may hold the address (default: all)", value: r.texts(
			&spec.Candidates)}.such([]string{"host1", "host2"}),
		field{name: "announce", help: "bgp: all candidates have the address at the same time, and announce it to " +
			"routers (default: one node holds it)", value: r.text(&spec.Announce)}.such("bgp"),
	}
}

func (r *reader) addressSchema(name string) schema.Schema {
	object := objectOf(r.virtualFields(&api.ClusterAddressSpec{}, name))
	object.Required = []string{name}
	return schema.Any(schema.Schema{Type: []string{"string"}}, object)
}

// virtual parses and declares an address of the cluster. The name is that of the field with the address.
func (r *reader) virtual(n *yaml.Node, path, name string) (at netip.Addr, ok bool) {
	var spec api.ClusterAddressSpec
	before := len(r.mistakes)
	r.object(n, path, r.virtualFields(&spec, name))
	if len(r.mistakes) == before && !spec.Address.IsValid() {
		r.mistake(n, path, "missing an address: write e.g. %s: 192.0.2.10/24", name)
	}
	if len(r.mistakes) > before {
		return at, false
	}
	r.declare(spec, n, path)
	return spec.Address.Addr(), true
}

// prefix returns a parser for an address with the length of its subnet.
func prefix(into *netip.Prefix) func(string) error {
	return func(word string) (err error) {
		if *into, err = netip.ParsePrefix(word); err != nil {
			return fmt.Errorf("%q: want an address with the length of its subnet, e.g. 192.0.2.10/24", word)
		}
		return nil
	}
}

// declare adds an address of the cluster. Several services can declare the same one.
func (r *reader) declare(spec api.ClusterAddressSpec, n *yaml.Node, path string) {
	i := slices.IndexFunc(r.Spec.Addresses, func(o api.ClusterAddressSpec) bool {
		return o.Address.Addr() == spec.Address.Addr()
	})
	if i < 0 {
		r.spots[fmt.Sprintf("addresses[%d]", len(r.Spec.Addresses))] = spot{r.file, n, path}
		r.Spec.Addresses = append(r.Spec.Addresses, spec)
		return
	}
	o := r.Spec.Addresses[i]
	if o.Address != spec.Address || o.Link != spec.Link || o.Hold != spec.Hold || o.Announce != spec.Announce ||
		!slices.Equal(o.Candidates, spec.Candidates) {
		first := r.spots[fmt.Sprintf("addresses[%d]", i)]
		r.mistake(n, path, "address %s is declared in %s:%d with other settings: leave one out", spec.Address.Addr(),
			first.file, first.node.Line)
	}
}

// writtenAddress writes an address of the cluster as one word if that is possible, else as an object.
func writtenAddress(spec api.ClusterAddressSpec) any {
	o := writtenObject(new(reader).virtualFields(&spec, "address"))
	if len(o) == 1 {
		return o[0].value
	}
	return o
}
