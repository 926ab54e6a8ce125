package file

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"fairlead/internal/api"
	"fairlead/internal/escape"

	"go.yaml.in/yaml/v3"
)

// The objects of a file, with their fields in the order in which they are written.
type fileText struct {
	Name        string             `yaml:"name,omitempty" json:"name,omitempty"`
	Networks    map[string]ordered `yaml:"networks,omitempty" json:"networks,omitempty"`
	Attachments []ordered          `yaml:"attachments,omitempty" json:"attachments,omitempty"`
	Services    map[string]ordered `yaml:"services,omitempty" json:"services,omitempty"`
	Addresses   []any              `yaml:"addresses,omitempty" json:"addresses,omitempty"`
	Gateway     ordered            `yaml:"gateway,omitempty" json:"gateway,omitempty"`
	Cluster     map[string]ordered `yaml:"cluster,omitempty" json:"cluster,omitempty"`
}

// Write writes a Spec as YAML. Read returns the same Spec for it.
func Write(w io.Writer, spec api.Spec) error {
	var document yaml.Node
	if err := document.Encode(written(spec)); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	quoteHidden(&document)
	encoder := yaml.NewEncoder(escape.Writer(w))
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return encoder.Close()
}

// quoteHidden puts texts with hidden characters in double quotes. YAML decodes the
// escape sequences of package escape only there.
func quoteHidden(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && escape.Line(n.Value) != n.Value {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, part := range n.Content {
		quoteHidden(part)
	}
}

// WriteJSON writes a Spec as JSON. Read returns the same Spec for it.
func WriteJSON(w io.Writer, spec api.Spec) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(written(spec))
}

func written(spec api.Spec) fileText {
	f := fileText{Name: spec.Set, Gateway: writtenGateway(spec.Gateway), Networks: map[string]ordered{},
		Services: map[string]ordered{}, Addresses: each(spec.Addresses, writtenAddress)}
	if c := spec.ClusterGateway; c != nil {
		f.Cluster = map[string]ordered{"gateway": writtenFields(reflect.ValueOf(*c))}
	}
	r := new(reader)
	for _, n := range spec.Networks {
		f.Networks[n.Name] = writtenObject(r.networkFields(&n))
	}
	for _, a := range spec.Attachments {
		f.Attachments = append(f.Attachments, writtenObject(r.attachmentFields(&a, "")))
	}
	for _, v := range spec.Services {
		f.Services[v.Name] = writtenService(declaredService{VirtualService: v})
	}
	for _, v := range spec.ClusterServices {
		f.Services[v.Name] = writtenService(declaredService{v.VirtualService, true, v.Ingress})
	}
	return f
}

// each writes the elements of a list.
func each[T, Text any](all []T, write func(T) Text) (texts []Text) {
	for _, one := range all {
		texts = append(texts, write(one))
	}
	return texts
}

func strs[T fmt.Stringer](values []T) []string {
	return each(values, T.String)
}
