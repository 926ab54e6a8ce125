package traefik

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// combined is the configuration of all containers on the way.
type combined struct {
	*index
	config   gateway.Config
	problems []Problem
}

// combine puts the definitions of the parts together. Names that several containers define follow the
// rules of docs/adr/0059-names-have-owners.md.
func (x *index) combine(parts []*part) *combined {
	c := &combined{index: x}
	for _, p := range parts {
		for _, d := range p.definitions {
			if d.value != nil && x.named[d] == nil && !x.yields[d] {
				c.put(d.docker, d, d.value)
			}
		}
		c.reported(p)
	}
	for _, k := range slices.SortedFunc(maps.Keys(x.several), compareKeys) {
		c.conflicts(k)
		for _, o := range x.objects[k] {
			if !o.faulty() {
				c.put(o.name, o.first(), c.withServers(o))
			}
		}
	}
	c.ties(parts)
	c.stores(parts)
	return c
}

func compareKeys(a, b key) int {
	return strings.Compare(a.kind.name+" "+a.name, b.kind.name+" "+b.name)
}

// withServers returns the value of an object with the servers of all containers of its owner that define
// the name.
func (c *combined) withServers(o *object) any {
	d := o.first()
	if d.kind.join == nil {
		return d.value
	}
	var all []any
	for _, other := range c.several[d.key] {
		if other.value != nil && other.from.owner == d.from.owner {
			all = append(all, other.value)
		}
	}
	if len(all) == 1 {
		return d.value
	}
	return d.kind.join(d.value, all)
}

// put adds an object with the references of a definition. A reference that cannot be decided disables the
// object.
func (c *combined) put(name string, d *definition, value any) {
	if !c.scoped && len(c.several) == 0 {
		d.kind.in(&c.config).Put(name, value)
		return
	}
	var changes map[key]string
	closed := false
	d.kind.references(value, func(k key, reference *string) {
		if !c.scoped && c.several[k] == nil {
			return
		}
		to, among := c.find(d.from, k)
		switch {
		case to != nil && c.named[to] != nil && c.named[to].name != *reference:
			if changes == nil {
				changes = map[key]string{}
			}
			changes[k] = c.named[to].name
		case to == nil && len(among) > 0:
			closed = true
			c.problems = append(c.problems, Problem{Object: d.kind.name + " " + name, Source: d.from.source(),
				Text: c.undecided(d.from, k, among)})
		}
	})
	if closed && !d.kind.chosen {
		return
	}
	if changes != nil {
		value = gateway.Clone(value)
		d.kind.references(value, func(k key, reference *string) {
			if to, ok := changes[k]; ok {
				*reference = to
			}
		})
	}
	d.kind.in(&c.config).Put(name, value)
}

// reported adds the problems of a part, under the names that its objects have.
func (c *combined) reported(p *part) {
	for _, problem := range p.problems {
		if k, ok := keyOf(problem.Object); ok {
			d := p.own[k]
			if c.yields[d] {
				continue
			}
			problem.Object = k.kind.name + " " + c.nameOf(d)
		}
		c.problems = append(c.problems, problem)
	}
}

// stores sets the default TLS store. The gateway has one, so containers that define it differently lose
// it all.
func (c *combined) stores(parts []*part) {
	const object = tlsStore + " default"
	var have []*part
	for _, p := range parts {
		if p.config.TLS.Stores["default"] != nil {
			have = append(have, p)
		}
	}
	for _, p := range have {
		if other := slices.IndexFunc(have, func(o *part) bool { return !p.sameStore(o) }); other >= 0 {
			c.problems = append(c.problems, Problem{Object: object, Source: p.source(), Text: fmt.Sprintf(
				"%s defines it with other settings, and the gateway has only one: make both equal", have[other].source())})
			c.config.TLS.Stores = nil
			continue
		}
		c.config.TLS.Stores = p.config.TLS.Stores
	}
}

// renamed returns the objects that have other names than in the last index.
func (x *index) renamed(last *index) (all []gateway.Renamed) {
	if last == nil {
		return nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(x.several), compareKeys) {
		all = append(all, x.renamedTo(last, k)...)
	}
	for _, k := range slices.SortedFunc(maps.Keys(last.several), compareKeys) {
		if x.several[k] == nil {
			all = append(all, x.renamedTo(last, k)...)
		}
	}
	return all
}

func (x *index) renamedTo(last *index, k key) (all []gateway.Renamed) {
	now := x.names(k)
	for full, from := range last.names(k) {
		if to, ok := now[full]; ok && to != from {
			all = append(all, gateway.Renamed{Kind: k.kind.name, From: from, To: to})
		}
	}
	slices.SortFunc(all, func(a, b gateway.Renamed) int { return strings.Compare(a.To, b.To) })
	return all
}

// names returns the names of the objects by their full names.
func (x *index) names(k key) map[string]string {
	objects := x.objects[k]
	if d := x.one[k]; d != nil {
		objects = []*object{{definitions: []*definition{d}}}
		nameObjects(k, objects)
	}
	names := map[string]string{}
	for _, o := range objects {
		names[o.full] = o.name
	}
	return names
}
