package traefik

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
)

// definition is what the labels of one container say about one name.
type definition struct {
	key
	from *part
	// value is nil if the labels are faulty.
	value any
	// docker is NAME@docker.
	docker string
	// match is set for routers that are not faulty.
	match match
}

// key is a kind and a name without "@docker".
type key struct {
	kind *kind
	name string
}

func (k key) short() string { return k.name + "@docker" }

// define sets the definitions of a part: all that its configuration has, all that its labels name, and
// all that it has problems with.
func (p *part) define(root *tree.Node) {
	p.own = map[key]*definition{}
	for _, k := range kinds {
		for name, value := range k.in(&p.config).All() {
			p.add(key{k, strings.TrimSuffix(name, "@docker")}, value)
		}
		section, list := k.labels()
		if n := root.Child(section).Child(list); n != nil {
			for _, child := range n.Children {
				p.add(key{k, child.Name}, nil)
			}
		}
	}
	for _, problem := range p.problems {
		if k, ok := keyOf(problem.Object); ok {
			p.add(k, nil)
		}
	}
	slices.SortFunc(p.definitions, func(a, b *definition) int {
		return cmp.Or(strings.Compare(a.kind.name, b.kind.name), strings.Compare(a.name, b.name))
	})
}

func (p *part) add(k key, value any) {
	if p.own[k] != nil {
		return
	}
	d := &definition{key: k, from: p, value: value, docker: k.short()}
	if k.kind.chosen && value != nil {
		d.match = k.kind.match(value)
	}
	p.own[k] = d
	p.definitions = append(p.definitions, d)
}

// labels returns the names between which labels have the kind, such as "http" and "routers".
func (k *kind) labels() (section, list string) {
	switch k.name {
	case router, service, middleware:
		return "http", k.name + "s"
	}
	section, list, _ = strings.Cut(strings.ToLower(k.name), " ")
	return section, list + "s"
}

// keyOf returns the key of the object that a problem names.
func keyOf(object string) (key, bool) {
	at := strings.LastIndex(object, " ")
	if at < 0 {
		return key{}, false
	}
	k := kindNamed(object[:at])
	return key{k, strings.TrimSuffix(object[at+1:], "@docker")}, k != nil
}

// index has the definitions of all containers by their names. Most names have one definition.
type index struct {
	// scoped means that references stay with their owner.
	scoped  bool
	one     map[key]*definition
	several map[key][]*definition
	// objects are those of the names with several definitions.
	objects map[key][]*object
	// yields are the routers that give way, and are left out.
	yields map[*definition]bool
	// named are the objects of these definitions.
	named map[*definition]*object
	comparison
}

// comparison is what is known of pairs of definitions. A pair that is being compared is assumed to be equal,
// because definitions can refer to themselves.
type comparison struct {
	equals map[pair]bool
	// assumed are the pairs that are equal only on the assumption that the pair at a depth is, in order;
	// on has the least such depth.
	assumed []pair
	on      map[pair]int
	// depth is the number of pairs that are being compared, least the least depth that the one on the way
	// depends on.
	depth, least int
}

type pair struct{ a, b *definition }

// newIndex returns the index of the definitions of parts, without the routers that give way.
func newIndex(parts []*part, scoped bool) *index {
	size := 0
	for _, p := range parts {
		size += len(p.definitions)
	}
	x := &index{scoped: scoped, yields: yielding(parts), one: make(map[key]*definition, size),
		several: map[key][]*definition{},
		objects: map[key][]*object{}, named: map[*definition]*object{},
		comparison: comparison{equals: map[pair]bool{}, on: map[pair]int{}}}
	for _, p := range parts {
		for _, d := range p.definitions {
			switch first := x.one[d.key]; {
			case x.yields[d]:
			case first != nil:
				x.several[d.key] = []*definition{first, d}
				delete(x.one, d.key)
			case x.several[d.key] != nil:
				x.several[d.key] = append(x.several[d.key], d)
			default:
				x.one[d.key] = d
			}
		}
	}
	for k, all := range x.several {
		x.objects[k] = x.split(all)
		nameObjects(k, x.objects[k])
		for _, o := range x.objects[k] {
			for _, d := range o.definitions {
				x.named[d] = o
			}
		}
	}
	return x
}

// all returns the definitions of a name.
func (x *index) all(k key) []*definition {
	if d := x.one[k]; d != nil {
		return []*definition{d}
	}
	return x.several[k]
}

// yielding returns the routers that give way: their container is not ready, and a ready one of the same
// owner takes the same requests, or has the same name and a project. The labels of a deployment may change
// the rule.
func yielding(parts []*part) map[*definition]bool {
	if !slices.ContainsFunc(parts, func(p *part) bool { return !p.ready && len(p.definitions) > 0 }) {
		return nil
	}
	type named struct {
		owner owner
		key   key
	}
	type matched struct {
		owner owner
		match match
	}
	names, matches, yields := map[named]bool{}, map[matched]bool{}, map[*definition]bool{}
	for d := range chosen(parts, true) {
		if d.value != nil {
			names[named{d.from.owner, d.key}] = !d.from.owner.shared()
			matches[matched{d.from.owner, d.match}] = true
		}
	}
	for d := range chosen(parts, false) {
		if names[named{d.from.owner, d.key}] || d.value != nil && matches[matched{d.from.owner, d.match}] {
			yields[d] = true
		}
	}
	return yields
}

// chosen iterates over the routers of the containers that are ready, or are not.
func chosen(parts []*part, ready bool) iter.Seq[*definition] {
	return func(yield func(*definition) bool) {
		for _, p := range parts {
			if p.ready != ready {
				continue
			}
			for _, d := range p.definitions {
				if d.kind.chosen && !yield(d) {
					return
				}
			}
		}
	}
}

// find returns the definition that a name means in the labels of a container: that of the container, of
// its owner, or of the only other owner. If it cannot be decided, it returns nil and all that could be
// meant.
func (x *index) find(from *part, k key) (*definition, []*definition) {
	if own := from.own[k]; own != nil {
		return own, nil
	}
	var mates, others []*definition
	for _, d := range x.all(k) {
		switch {
		case d.from.owner == from.owner:
			mates = append(mates, d)
		case d.value != nil:
			others = append(others, d)
		}
	}
	switch {
	case len(mates) > 0:
		return x.preferred(mates)
	case len(others) == 0:
		return nil, nil
	case x.scoped:
		return nil, others
	}
	first := others[0]
	if !slices.ContainsFunc(others, func(d *definition) bool { return d.from.owner != first.from.owner }) {
		return x.preferred(others)
	}
	return x.agreed(others)
}

// preferred returns the definition of one owner that others of its containers use. Faulty ones count only
// if there is no other, and those of containers that are not ready only if there is no ready one. The
// newest of a project is that of the last deployment. Containers without a project may be strangers, so
// their age decides nothing.
func (x *index) preferred(all []*definition) (*definition, []*definition) {
	all = prefer(all, func(d *definition) bool { return d.value != nil })
	all = prefer(all, func(d *definition) bool { return d.from.ready })
	if all[0].from.owner.shared() {
		return x.agreed(all)
	}
	return slices.MaxFunc(all, byDeployment), nil
}

// agreed returns the first definition if all are equal, and else all.
func (x *index) agreed(all []*definition) (*definition, []*definition) {
	for _, d := range all[1:] {
		if !x.equal(all[0], d) {
			return nil, all
		}
	}
	return all[0], nil
}

// prefer returns the definitions for which the condition holds, or all if it holds for none.
func prefer(all []*definition, holds func(*definition) bool) []*definition {
	var chosen []*definition
	for _, d := range all {
		if holds(d) {
			chosen = append(chosen, d)
		}
	}
	if len(chosen) == 0 {
		return all
	}
	return chosen
}

// equal reports whether two definitions of a name mean the same: their values are equal, but for servers,
// and their references mean the same. Definitions that refer to themselves are equal unless something else
// differs.
func (x *index) equal(a, b *definition) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || a.key != b.key || a.value == nil || b.value == nil {
		return false
	}
	p := pair{a, b}
	if equal, known := x.equals[p]; known {
		if depth, depends := x.on[p]; depends {
			x.least = min(x.least, depth)
		}
		return equal
	}
	return x.compare(p, func() bool {
		return (a.from.owner == b.from.owner || a.kind.across) && a.kind.same(a.value, b.value) &&
			x.sameReferences(a, b)
	})
}

// compare compares a pair with a function that may compare others. A result stays unless it depends on the
// assumption that a pair is equal whose comparison has not ended. So each pair is compared a few times at
// most.
func (c *comparison) compare(p pair, same func() bool) bool {
	depth, outer, before := c.depth, c.least, len(c.assumed)
	c.equals[p], c.on[p], c.assumed = true, depth, append(c.assumed, p)
	c.depth, c.least = depth+1, depth
	equal := same()
	least := c.least
	c.depth, c.least = depth, outer
	if equal && least < depth {
		c.on[p], c.least = least, min(outer, least)
		return true
	}
	for _, assumed := range c.assumed[before:] {
		if delete(c.on, assumed); !equal {
			delete(c.equals, assumed)
		}
	}
	c.equals[p], c.assumed = equal, c.assumed[:before]
	return equal
}

func (x *index) sameReferences(a, b *definition) bool {
	same := true
	a.kind.references(a.value, func(k key, _ *string) {
		if same {
			left, _ := x.find(a.from, k)
			right, _ := x.find(b.from, k)
			same = x.equal(left, right)
		}
	})
	return same
}

// references visits the references in a value to what labels define.
func (k *kind) references(value any, visit func(k key, name *string)) {
	if value == nil {
		return
	}
	refer(value, func(kind string, name *string) {
		base, ours := strings.CutSuffix(*name, "@docker")
		if to := kindNamed(kind); ours && to != nil {
			visit(key{to, base}, name)
		}
	})
}
