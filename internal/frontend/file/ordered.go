package file

import (
	"bytes"
	"encoding/json"
	"fmt"

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
