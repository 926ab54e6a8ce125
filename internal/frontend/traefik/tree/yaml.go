package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"fairlead/internal/model/gateway"

	"go.yaml.in/yaml/v3"
)

// YAML returns the tree of the first document of a YAML text. Keys with the value null
// are left out, as Traefik does. An error has the line.
func YAML(text []byte) (*Node, error) {
	var doc yaml.Node
	err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&doc)
	if errors.Is(err, io.EOF) {
		return &Node{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("parse YAML: %s", WithoutValues(err))
	}
	return FromYAML(doc.Content[0])
}

// yamlValue matches what errors of the YAML library show of values. The library takes a value that begins
// with "*" for the name of an anchor.
var yamlValue = regexp.MustCompile("`[^`]*`|anchor '[^']*'")

// WithoutValues returns the text of an error of the YAML library without values, which can be credentials.
func WithoutValues(err error) string {
	return yamlValue.ReplaceAllStringFunc(err.Error(), func(found string) string {
		if strings.HasPrefix(found, "anchor") {
			return "anchor " + gateway.Hidden
		}
		return gateway.Hidden
	})
}

// FromYAML returns the tree of a YAML node, as YAML does.
func FromYAML(y *yaml.Node) (*Node, error) {
	// Decoding into a map resolves aliases, with a limit of what they may expand to.
	var limited map[string]any
	if err := y.Decode(&limited); err != nil {
		return nil, fmt.Errorf("parse YAML: %s", WithoutValues(err))
	}
	root := &Node{Line: y.Line}
	addYAML(root, y)
	return root, nil
}

// addYAML gives a node the values and children of a YAML node.
func addYAML(n *Node, y *yaml.Node) {
	for y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	switch y.Kind {
	case yaml.MappingNode:
		addFields(n, y)
	case yaml.SequenceNode:
		for i, elem := range y.Content {
			child := &Node{Name: "[" + strconv.Itoa(i) + "]", Line: elem.Line}
			addYAML(child, elem)
			n.Children = append(n.Children, child)
		}
	default:
		if y.Tag != "!!null" {
			n.Values = []string{plain(y)}
		}
	}
}

// addFields adds the keys of a mapping. A merge key ("<<") adds those of other mappings
// that the mapping does not have.
func addFields(n *Node, y *yaml.Node) {
	var merged []*yaml.Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, value := y.Content[i], y.Content[i+1]
		switch {
		case key.Tag == "!!merge" && value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case value.Tag != "!!null":
			child := &Node{Name: key.Value, Line: key.Line}
			addYAML(child, value)
			n.Children = append(n.Children, child)
		}
	}
	for _, source := range merged {
		from := &Node{}
		addYAML(from, source)
		for _, child := range from.Children {
			if n.Child(child.Name) == nil {
				n.Children = append(n.Children, child)
			}
		}
	}
}

// plain returns a scalar as text. Integers that are not decimal and numbers with
// underscores get their decimal form.
func plain(y *yaml.Node) string {
	switch y.Tag {
	case "!!int":
		var i int64
		if y.Decode(&i) == nil {
			return strconv.FormatInt(i, 10)
		}
	case "!!bool":
		var on bool
		if y.Decode(&on) == nil {
			return strconv.FormatBool(on)
		}
	}
	return y.Value
}
