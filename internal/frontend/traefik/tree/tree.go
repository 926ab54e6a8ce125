// Package tree parses keys with values, such as http.routers.web.rule, into trees, and decodes
// trees into structs. It opens no file, and does not check whether values fit together.
//
// Labels, flags, variables and texts of YAML and TOML become trees of Nodes. Decode fills the
// fields from a tree, and returns a Mistake for each key that it does not know or cannot parse.
package tree

import (
	"fmt"
	"slices"
	"strings"
)

// Node is a key with its values, its children, or both.
type Node struct {
	// Name is as the user wrote it. An element of a list has the name "[n]".
	Name string
	// Values are in the order of the source. A key that is given once has one.
	Values   []string
	Children []*Node
	// Line is the line in the file, and 0 if it is not known.
	Line int
}

// Value returns the last value, or "" without one.
func (n *Node) Value() string {
	if len(n.Values) == 0 {
		return ""
	}
	return n.Values[len(n.Values)-1]
}

// Child returns the child with this name, ignoring case, or nil.
func (n *Node) Child(name string) *Node {
	if n == nil {
		return nil
	}
	for _, c := range n.Children {
		if strings.EqualFold(c.Name, name) {
			return c
		}
	}
	return nil
}

// LineOf returns the line of the last name of a key that the tree has. The key is below the root.
func (n *Node) LineOf(key string) int {
	for at := ""; ; {
		i := slices.IndexFunc(n.Children, func(c *Node) bool {
			below := Join(at, c.Name)
			return strings.EqualFold(below, key[:min(len(below), len(key))]) &&
				(len(key) == len(below) || len(key) > len(below) && strings.ContainsRune(".[", rune(key[len(below)])))
		})
		if i < 0 {
			return n.Line
		}
		n, at = n.Children[i], Join(at, n.Children[i].Name)
	}
}

// Pair is a key such as "http.routers.web.tls.domains[0].main", and its value.
type Pair struct {
	Key, Value string
}

// Mistake is a key that is not in effect, and why.
type Mistake struct {
	Key string
	// Line is the line in the file, and 0 if it is not known.
	Line int
	Text string
	// Warning means that the key is in effect although it is written wrongly.
	Warning bool
}

// Error returns the key and the text, after the line if it is known.
func (m Mistake) Error() string {
	text := m.Text
	if m.Key != "" {
		text = m.Key + ": " + text
	}
	if m.Line > 0 {
		return fmt.Sprintf("line %d: %s", m.Line, text)
	}
	return text
}

// FromPairs returns the root of the tree that the pairs describe. Names merge ignoring case,
// and the first spelling stays. As in Traefik, keys are sorted as text, so that "[10]"
// precedes "[2]". A key that is given several times has several values.
func FromPairs(pairs []Pair) (*Node, []Mistake) {
	pairs = slices.Clone(pairs)
	slices.SortStableFunc(pairs, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
	root := &Node{}
	type place struct {
		parent *Node
		name   string
	}
	known := map[place]*Node{}
	var mistakes []Mistake
	for _, p := range pairs {
		names, err := Split(p.Key)
		if err != nil {
			mistakes = append(mistakes, Mistake{Key: shortened(p.Key), Text: err.Error()})
			continue
		}
		n := root
		for _, name := range names {
			at := place{n, strings.ToLower(name)}
			child := known[at]
			if child == nil {
				child = &Node{Name: name}
				n.Children, known[at] = append(n.Children, child), child
			}
			n = child
		}
		n.Values = append(n.Values, p.Value)
	}
	return root, mistakes
}

// The limits of a key, in bytes and in names. The longest keys of Traefik have about ten names.
const (
	maxKey   = 1 << 10
	maxDepth = 32
)

// shortened returns the begin of a key for a message.
func shortened(key string) string {
	const most = 80
	if len(key) <= most {
		return key
	}
	return strings.ToValidUTF8(key[:most], "") + "…"
}

// Split returns the names of a key: "a.b[0].c" has a, b, [0] and c.
func Split(key string) (names []string, err error) {
	if len(key) > maxKey {
		return nil, fmt.Errorf("the key has %d bytes: want at most %d", len(key), maxKey)
	}
	if depth := strings.Count(key, ".") + strings.Count(key, "["); depth >= maxDepth {
		return nil, fmt.Errorf("the key has more than %d names: no setting is nested so deep", maxDepth)
	}
	for name := range strings.SplitSeq(key, ".") {
		at := strings.IndexByte(name, '[')
		switch {
		case name == "":
			return nil, fmt.Errorf("a name between two dots is empty: remove the dot that is too much")
		case at == 0:
			return nil, fmt.Errorf("%q has no name before its index: write NAME%s", name, name)
		case !strings.HasSuffix(name, "]"):
			names = append(names, name)
		case at < 0:
			return nil, fmt.Errorf("%q has no \"[\" for its \"]\"", name)
		default:
			names = append(names, name[:at], name[at:])
		}
	}
	return names, nil
}

// Join returns the key of a child, as users write it.
func Join(key, name string) string {
	if key == "" || strings.HasPrefix(name, "[") {
		return key + name
	}
	return key + "." + name
}
