package traefik

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// mostContainers is how many containers a problem names at most.
const mostContainers = 3

// undecided says why a reference in the labels of a container is closed.
func (c *combined) undecided(from *part, k key, among []*definition) string {
	have := describe(among)
	switch {
	case c.scoped:
		return fmt.Sprintf("%s %s belongs to %s, and labelScope=project keeps references in their project: define it "+
			"in this one, or in a file, and refer to it with NAME@file", k.kind.name, k.name, have)
	case from.owner == among[0].from.owner:
		return fmt.Sprintf("%s %s is defined differently by %s, and not by this container: define it here, or in a "+
			"file, and refer to it with NAME@file", k.kind.name, k.name, have)
	}
	return fmt.Sprintf("%s %s is defined differently by %s, and not by this container or its project: define it here, "+
		"or in a file, and refer to it with NAME@file", k.kind.name, k.name, have)
}

// describe names the containers of definitions, and their owners.
func describe(all []*definition) string {
	var texts []string
	for _, d := range all {
		texts = append(texts, d.from.describe())
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	if more := len(texts) - mostContainers; more > 0 {
		texts = append(texts[:mostContainers], fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// conflicts reports the objects of a name of which several can be used, each at its first container.
func (c *combined) conflicts(k key) {
	sound := slices.DeleteFunc(slices.Clone(c.objects[k]), (*object).faulty)
	if len(sound) < 2 {
		return
	}
	for _, o := range sound {
		var others []*definition
		foreign := false
		for _, other := range sound {
			if other != o {
				others = append(others, other.definitions...)
				foreign = foreign || other.owner() != o.owner() || o.owner().shared()
			}
		}
		c.problems = append(c.problems, Problem{Object: k.kind.name + " " + o.name, Source: o.first().from.source(),
			Text: describe(others) + " " + conflict(k, foreign), Warning: true})
	}
	c.ambiguous(k, sound)
}

// ambiguous reports a name that references from elsewhere cannot have.
func (c *combined) ambiguous(k key, sound []*object) {
	if k.kind.chosen || slices.ContainsFunc(sound, func(o *object) bool { return o.name == k.short() }) {
		return
	}
	var names []string
	var all []*definition
	for _, o := range sound {
		names = append(names, o.name)
		all = append(all, o.definitions...)
	}
	slices.Sort(names)
	if more := len(names) - mostNamed; more > 0 {
		names = append(names[:mostNamed], fmt.Sprintf("%d more", more))
	}
	c.problems = append(c.problems, Problem{Object: k.kind.name + " " + k.short(),
		Source: sound[0].first().from.source(), Text: fmt.Sprintf("the name is ambiguous, because %s define it differently: refer to one of %s, or rename them",
			describe(all), strings.Join(names, ", "))})
}

// conflict says what follows from several definitions of a name. Foreign means that not all are of one
// project.
func conflict(k key, foreign bool) string {
	switch {
	case k.kind.chosen:
		return fmt.Sprintf("defines %s %s differently: each exists, with a name of its own", k.kind.name, k.name)
	case foreign:
		return fmt.Sprintf("defines %s %s differently: each container uses its own, or that of its project; references "+
			"from elsewhere, also from files, are closed", k.kind.name, k.name)
	}
	return fmt.Sprintf("of the same project defines %s %s differently: each container uses its own; references from "+
		"elsewhere mean that of the newest container that is ready", k.kind.name, k.name)
}

// ties reports the routers of strangers that take the same requests. The first one by name gets
// them, as with all routers of equal priority.
func (c *combined) ties(parts []*part) {
	first, tied := make(map[match]*definition, len(c.config.HTTP.Routers)), map[match][]*definition{}
	for _, p := range parts {
		for _, d := range p.definitions {
			if d.value == nil || !d.kind.chosen || d.kind.name == udpRouter || c.yields[d] {
				continue
			}
			m := d.match
			switch had := first[m]; {
			case had == nil:
				first[m] = d
			case tied[m] != nil || c.strangers(had, d):
				tied[m] = append(tied[m], d)
			}
		}
	}
	for m, all := range tied {
		all = append(all, first[m])
		slices.SortFunc(all, func(a, b *definition) int { return strings.Compare(c.nameOf(a), c.nameOf(b)) })
		tied[m] = all
	}
	for _, all := range slices.SortedFunc(maps.Values(tied), func(a, b []*definition) int {
		return cmp.Or(strings.Compare(a[0].kind.name, b[0].kind.name), strings.Compare(c.nameOf(a[0]), c.nameOf(b[0])))
	}) {
		c.tie(all)
	}
}

// strangers reports whether two definitions are not of one object, nor of one project.
func (c *combined) strangers(a, b *definition) bool {
	return a.from.owner != b.from.owner || a.from.owner.shared() && c.nameOf(a) != c.nameOf(b)
}

// tie reports routers with the same rule and priority, in the order of their names.
func (c *combined) tie(all []*definition) {
	winner := all[0]
	report := func(d, other *definition, text string) {
		c.problems = append(c.problems, Problem{Object: d.kind.name + " " + c.nameOf(d), Source: d.from.source(),
			Text: fmt.Sprintf("%s %s of %s has the same rule and priority: %s", d.kind.name, c.nameOf(other),
				other.from.describe(), text), Warning: true})
	}
	reported := map[string]bool{c.nameOf(winner): true}
	for _, d := range all[1:] {
		if name := c.nameOf(d); !reported[name] {
			if len(reported) == 1 {
				report(winner, d, "this one gets the requests, because its name is first")
			}
			report(d, winner, "that one gets the requests, because its name is first; change the rule, or set priorities")
			reported[name] = true
		}
	}
}

// nameOf returns the qualified name of the object of a definition.
func (c *combined) nameOf(d *definition) string {
	if o := c.named[d]; o != nil {
		return o.name
	}
	return d.docker
}
