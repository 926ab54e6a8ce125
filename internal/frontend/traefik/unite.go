package traefik

import (
	"fmt"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
)

// sectionLevels are the levels of sections above objects: http, and routers below it.
const sectionLevels = 2

// unite returns the tree with one node for each section: the names of sections ignore case, so "routers" and
// "Routers" are the same, and have the objects of both. An object that both have is a mistake, and the first
// one stays. Levels is the number of levels of sections below the node. It changes no node.
func (r *reporter) unite(n *tree.Node, key string, levels int) *tree.Node {
	united := &tree.Node{Name: n.Name, Values: n.Values, Line: n.Line}
	seen := map[string]*tree.Node{}
	for _, child := range n.Children {
		name := child.Name
		if levels > 0 {
			name = strings.ToLower(name)
		}
		first := seen[name]
		switch {
		case first == nil || strings.HasPrefix(name, "["): // the elements of two lists are one list
			same := *child
			seen[name] = &same
			united.Children = append(united.Children, &same)
		case levels > 0:
			first.Children = append(first.Children[:len(first.Children):len(first.Children)], child.Children...)
		default:
			text := "it is defined twice, because names of sections ignore case: the first definition"
			if first.Line > 0 {
				text += fmt.Sprintf(", in line %d,", first.Line)
			}
			r.mistakes("", []tree.Mistake{{Key: tree.Join(key, name), Line: child.Line, Warning: true,
				Text: text + " stays; leave one out"}})
		}
	}
	if levels > 0 {
		for i, child := range united.Children {
			united.Children[i] = r.unite(child, tree.Join(key, child.Name), levels-1)
		}
	}
	return united
}
