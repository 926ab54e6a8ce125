package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"go.yaml.in/yaml/v3"
)

// ordered is an object whose fields are written in this order.
type ordered []member

// member is a field with its value.
type member struct {
	name  string
	value any
}

// bare is a value that is written without quotes: a number, true or false.
type bare string

// MarshalYAML implements yaml.Marshaler.
func (o ordered) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range o {
		key, value := &yaml.Node{Kind: yaml.ScalarNode, Value: f.name}, &yaml.Node{}
		if word, is := f.value.(bare); is {
			value = &yaml.Node{Kind: yaml.ScalarNode, Value: string(word)}
		} else if err := value.Encode(f.value); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, list := f.value.([]string); list {
			value.Style = yaml.FlowStyle
		}
		n.Content = append(n.Content, key, value)
	}
	return n, nil
}

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		value := f.value
		if word, is := value.(bare); is {
			value = json.RawMessage(word)
		}
		key, _ := json.Marshal(f.name) // cannot fail for a string
		body, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(body)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// add adds a field, unless its value is empty.
func (o *ordered) add(name, value string) {
	if value != "" {
		*o = append(*o, member{name, value})
	}
}

// fields adds the fields of a service that differ from their defaults.
func (o *ordered) fields(all []syntax.ServiceField, v model.VirtualService) {
	for _, f := range all {
		value := f.Get(v)
		if value != "" && (f.Value == "" || f.Value == "NUMBER" || f.Value == "PERCENT" || f.Value == "PORT") {
			*o = append(*o, member{f.Name, bare(value)})
		} else {
			o.add(f.Name, value)
		}
	}
}

func writtenService(v model.VirtualService) ordered {
	o := ordered{{"address", oneOrAll(strs(v.Addresses))}, {"port", ports(v.Ports)}}
	if v.Proto != model.TCP {
		o.add("protocol", string(v.Proto))
	}
	o.fields(syntax.ServiceFields(), v)
	var check ordered
	check.fields(syntax.CheckFields(), v)
	if len(v.Check.Command) > 0 {
		check = append(check, member{"command", v.Check.Command})
	}
	if len(check) > 0 {
		o = append(o, member{"check", check})
	}
	var reals []any
	for _, r := range v.Reals {
		reals = append(reals, writtenReal(r))
	}
	if len(reals) > 0 {
		o = append(o, member{"reals", reals})
	}
	return o
}

func writtenClusterService(v api.ClusterService) ordered {
	o := append(ordered{{"cluster", true}}, writtenService(v.VirtualService)...)
	if len(v.Ingress) > 0 {
		o = append(o, member{"ingress", oneOrAll(v.Ingress)})
	}
	return o
}

// writtenReal writes a real server as one word if it has only an address and a port,
// else as an object.
func writtenReal(r model.RealServer) any {
	if r.Address.IsValid() && r.Weight == 1 && r.State == "" {
		return r.String()
	}
	var o ordered
	if r.Address.IsValid() {
		o.add("address", r.Address.String())
	}
	o.add("label", r.Select.Label)
	o.add("name", r.Select.Name)
	o.add("network", r.Select.Network)
	if r.Port != 0 {
		o = append(o, member{"port", bare(fmt.Sprint(r.Port))})
	}
	if r.Weight != 1 {
		o = append(o, member{"weight", bare(fmt.Sprint(r.Weight))})
	}
	o.add("state", string(r.State))
	return o
}

// oneOrAll returns the element of a list with one element, else the list.
func oneOrAll(all []string) any {
	if len(all) == 1 {
		return all[0]
	}
	return all
}

func ports(all []model.PortRange) any {
	words := strs(all)
	if len(words) == 1 && !strings.Contains(words[0], "-") {
		return bare(words[0])
	}
	return oneOrAll(words)
}
