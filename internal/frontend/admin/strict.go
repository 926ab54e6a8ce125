package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxDepth bounds how deep a request nests; none that is known nests half as
// deep.
const maxDepth = 16

// decode reads exactly one object of known fields, each at most once: of two,
// a reader on the way might take the other. Package json folds cases, so that
// Name and name are one field.
func decode(body io.Reader, into any) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if err := once(json.NewDecoder(bytes.NewReader(text))); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one object")
	}
	return nil
}

// once reads a value, and refuses a field that is there twice and nesting
// without bounds.
func once(decoder *json.Decoder) error {
	// An object that is open holds the fields so far, a list that is, nil.
	var open []map[string]bool
	name := false // whether a field's name comes next
	for {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		default:
			if field, ok := token.(string); ok && name {
				folded := strings.ToLower(field)
				if open[len(open)-1][folded] {
					return fmt.Errorf("field %q is there twice", field)
				}
				open[len(open)-1][folded], name = true, false
				continue
			}
		}
		if len(open) == 0 {
			return nil
		}
		if len(open) > maxDepth {
			return fmt.Errorf("it nests deeper than %d", maxDepth)
		}
		name = open[len(open)-1] != nil
	}
}
