package tree

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/BurntSushi/toml"
)

// TOML returns the tree of a TOML text. An error has the line; the nodes have none,
// because the parser does not keep them.
func TOML(text []byte) (*Node, error) {
	var values map[string]any
	if err := toml.Unmarshal(text, &values); err != nil {
		if syntax, ok := errors.AsType[toml.ParseError](err); ok {
			return nil, fmt.Errorf("parse TOML: line %d: %s", syntax.Position.Line, syntax.Message)
		}
		return nil, fmt.Errorf("parse TOML: %w", err)
	}
	root := &Node{}
	addTOML(root, values)
	return root, nil
}

func addTOML(n *Node, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			child := &Node{Name: name}
			addTOML(child, value[name])
			n.Children = append(n.Children, child)
		}
	case []map[string]any:
		for i, elem := range value {
			addElement(n, i, elem)
		}
	case []any:
		for i, elem := range value {
			addElement(n, i, elem)
		}
	default:
		n.Values = []string{fmt.Sprint(value)}
	}
}

func addElement(n *Node, i int, value any) {
	child := &Node{Name: "[" + strconv.Itoa(i) + "]"}
	addTOML(child, value)
	n.Children = append(n.Children, child)
}
