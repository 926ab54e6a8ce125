package traefik

import (
	"cmp"
	"slices"
	"strings"
)

// object is one of several objects with the same name in labels: definitions that are equal, or one
// that is faulty.
type object struct {
	definitions []*definition
	// full is the name that identifies it whatever other containers define, and name the one that it has.
	full, name string
}

func (o *object) first() *definition { return o.definitions[0] }

func (o *object) owner() owner { return o.first().from.owner }

// faulty reports whether the object is left out.
func (o *object) faulty() bool { return o.first().value == nil }

// container returns the first name of the containers that define the object.
func (o *object) container() string {
	name := o.first().from.container
	for _, d := range o.definitions[1:] {
		name = min(name, d.from.container)
	}
	return name
}

// split puts the definitions of a name together that are equal.
func (x *index) split(all []*definition) (objects []*object) {
	for _, d := range all {
		i := slices.IndexFunc(objects, func(o *object) bool {
			return o.owner() == d.from.owner && x.equal(o.first(), d)
		})
		if i < 0 {
			objects = append(objects, &object{definitions: []*definition{d}})
			continue
		}
		objects[i].definitions = append(objects[i].definitions, d)
	}
	if len(objects) > 1 && objects[0].first().kind.across {
		if agreed, _ := x.agreed(all); agreed != nil {
			return []*object{{definitions: all}}
		}
	}
	return objects
}

// nameObjects names the objects of a name. NAME@docker is the only one that is not faulty, or else that
// of the only owner's last deployment. The others are NAME.OWNER@docker and
// NAME.OWNER.container:CONTAINER@docker: names in labels have no dots.
func nameObjects(k key, objects []*object) {
	var sound []*object
	latest := map[owner]*object{}
	for _, o := range objects {
		if o.full = o.fullName(k); o.faulty() {
			continue
		}
		sound = append(sound, o)
		if by := o.owner(); !by.shared() && (latest[by] == nil || byDeployment(o.last(), latest[by].last()) > 0) {
			latest[by] = o
		}
	}
	for _, o := range latest {
		o.full = k.name + "." + o.owner().inName() + "@docker"
	}
	for _, o := range objects {
		o.name = o.full
	}
	switch {
	case len(sound) == 1:
		sound[0].name = k.short()
	case len(objects) == 1:
		objects[0].name = k.short()
	case len(latest) == 1 && !slices.ContainsFunc(sound, func(o *object) bool { return latest[o.owner()] == nil }):
		latest[sound[0].owner()].name = k.short()
	}
}

// fullName returns the full name of an object that is not the latest one of a project.
func (o *object) fullName(k key) string {
	by, container := o.owner(), owner{ofContainer, o.container()}
	if by.shared() || by == container {
		return k.name + "." + container.inName() + "@docker"
	}
	return k.name + "." + by.inName() + "." + container.inName() + "@docker"
}

func (o *object) last() *definition { return slices.MaxFunc(o.definitions, byDeployment) }

// byDeployment orders the definitions of one project: that of a ready container is greater, then that of
// the newer one.
func byDeployment(a, b *definition) int {
	if a.from.ready != b.from.ready {
		if a.from.ready {
			return 1
		}
		return -1
	}
	return cmp.Or(a.from.created.Compare(b.from.created), strings.Compare(a.from.container, b.from.container))
}
