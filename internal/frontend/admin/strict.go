package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxDepth is the maximum nesting of a request. Valid requests need less than half
// of it.
const maxDepth = 16

// decode decodes exactly one object. It refuses unknown fields and fields that
// appear twice, because another reader of the request could use the other value.
// Package encoding/json ignores case: Name and name are the same field.
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
		return errors.New("the request has more than one object: send one per request")
	}
	return nil
}

// once reads a value. It returns an error for a field that appears twice, and for
// nesting deeper than maxDepth.
func once(decoder *json.Decoder) error {
	// open has an element per open object, with its fields so far, and nil per open
	// list.
	var open []map[string]bool
	name := false // whether the next token is a field's name
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
					return fmt.Errorf("field %q appears twice", field)
				}
				open[len(open)-1][folded], name = true, false
				continue
			}
		}
		if len(open) == 0 {
			return nil
		}
		if len(open) > maxDepth {
			return fmt.Errorf("the request nests deeper than %d levels", maxDepth)
		}
		name = open[len(open)-1] != nil
	}
}
