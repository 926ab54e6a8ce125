package file

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model"
	values "fairlead/internal/model/gateway"

	"go.yaml.in/yaml/v3"
)

// gateway parses the HTTP gateway. Its fields are those of Traefik's files, so package
// traefik decodes them.
func (r *reader) gateway(n *yaml.Node, path string) {
	n = followed(n)
	if r.Spec.Gateway != nil {
		first := r.spots["gateway"]
		r.mistake(n, path, "it is declared in %s:%d already: write all of it into one document", first.file,
			first.node.Line)
		return
	}
	if n.Kind != yaml.MappingNode {
		r.mistake(n, path, "want fields, such as entryPoints and http")
		return
	}
	root, err := tree.FromYAML(n)
	if err != nil {
		r.mistake(n, path, "%v", err)
		return
	}
	var g model.Gateway
	var found []tree.Mistake
	g.Static, g.Config, found = traefik.Declared(root, path)
	for _, m := range found {
		r.mistakes = append(r.mistakes, Mistake{r.file, m.Line, m.Key, m.Text})
	}
	r.Spec.Gateway = &g
	r.spots["gateway"] = spot{r.file, n, path}
	r.gatewaySpots(n, path, "gateway", 1)
}

// clusterGateway parses the objects of the gateway that belong to the cluster. No fields are an empty gateway.
func (r *reader) clusterGateway(n *yaml.Node, path string) {
	n = followed(n)
	if r.Spec.ClusterGateway != nil {
		first := r.spots[path]
		r.mistake(n, path, "it is declared in %s:%d already: write all of it into one document", first.file,
			first.node.Line)
		return
	}
	if n.Kind != yaml.MappingNode && n.Tag != "!!null" {
		r.mistake(n, path, "want fields, such as http, tcp, udp and tls")
		return
	}
	r.Spec.ClusterGateway = &values.Config{}
	r.spots[path] = spot{r.file, n, path}
	if n.Kind != yaml.MappingNode {
		return
	}
	root, err := tree.FromYAML(n)
	if err != nil {
		r.mistake(n, path, "%v", err)
		return
	}
	config, found := traefik.DeclaredInCluster(root, path)
	for _, m := range found {
		r.mistakes = append(r.mistakes, Mistake{r.file, m.Line, m.Key, m.Text})
	}
	r.Spec.ClusterGateway = &config
	r.gatewaySpots(n, path, path, 1)
}

// DeclaresGateway reports whether a text is YAML with the field gateway.
func DeclaresGateway(text []byte) bool {
	var top struct{ Gateway yaml.Node }
	return yaml.Unmarshal(text, &top) == nil && !top.Gateway.IsZero()
}

// gatewaySpots records the places of the sections and objects of a gateway. The names of
// sections are in lower case, in as many levels as sections says.
func (r *reader) gatewaySpots(n *yaml.Node, path, part string, sections int) {
	fields(n, func(key, value *yaml.Node) {
		name, below := key.Value, sections-1
		if sections > 0 {
			name = strings.ToLower(name)
		}
		if (part == "gateway" || part == "cluster.gateway") &&
			slices.Contains([]string{"http", "tcp", "udp", "tls"}, name) {
			below = 1
		}
		at := spot{r.file, &yaml.Node{Kind: value.Kind, Content: value.Content, Line: key.Line}, join(path, key.Value)}
		r.spots[join(part, name)] = at
		if value.Kind == yaml.SequenceNode {
			for i, item := range value.Content {
				index := fmt.Sprintf("[%d]", i)
				r.spots[join(part, name)+index] = spot{r.file, followed(item), at.field + index}
			}
		}
		if below >= 0 {
			r.gatewaySpots(value, at.field, join(part, name), below)
		}
	})
}
