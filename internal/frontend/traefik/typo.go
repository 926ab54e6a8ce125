package traefik

import (
	"maps"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/similar"
)

// alike reports whether two names probably mean the same: they are at most one edit
// apart (an insertion, a deletion, a replacement, or a swap of neighbours), or a part of
// the one is at another place in the other, as in my-routerhttp and my-httprouter.
func alike(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if min(len(a), len(b)) < 3 || max(len(a), len(b)) > similar.MaxLength || digits(a) != digits(b) {
		return false
	}
	return similar.Distance(a, b) <= 1 || sorted(a) == sorted(b)
}

// digits returns the digits of a name: web1 and web2 are not alike.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, s)
}

func sorted(s string) string {
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}

// maxCompared is the number of routers of a container up to which their names are
// compared with each other.
const maxCompared = 100

// reportTypos warns of routers that have no rule of their own, beside one that has: most
// often their only label has a mistyped name. Routers is the node "routers" of the
// labels, key its key.
func (r *reporter) reportTypos(kind string, routers *tree.Node, key string) {
	if routers == nil || len(routers.Children) > maxCompared {
		return
	}
	withRule := map[string]bool{}
	for _, n := range routers.Children {
		if n.Child("rule") != nil {
			withRule[n.Name] = true
		}
	}
	for _, n := range routers.Children {
		if withRule[n.Name] || len(withRule) == 0 || len(n.Children) == 0 {
			continue
		}
		label := tree.Join(tree.Join(key, n.Name), strings.ToLower(n.Children[0].Name))
		for _, other := range slices.Sorted(maps.Keys(withRule)) {
			if alike(n.Name, other) {
				r.warn(r.object(kind, n.Name), "the router exists only because of the label %s, and %q has nearly the "+
					"same name: if one router is meant, write %q in all labels", label, other, other)
				break
			}
		}
	}
}
