package jsonsum_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"fairlead/internal/jsonsum"
)

// TestEachBit flips each bit of an object: it is a damage, or the object cannot be parsed.
func TestEachBit(t *testing.T) {
	object, err := json.Marshal(map[string]any{"a": 1, "b": strings.Repeat("text", 40)})
	if err != nil {
		t.Fatal(err)
	}
	text := jsonsum.Add(object)
	if summed, err := jsonsum.Check(text); !summed || err != nil || !json.Valid(text) {
		t.Fatalf("%s: %v, %v", text, summed, err)
	}
	for i := range text {
		for bit := range 8 {
			damaged := bytes.Clone(text)
			damaged[i] ^= 1 << bit
			if _, err := jsonsum.Check(damaged); !errors.Is(err, jsonsum.ErrDamaged) && json.Valid(damaged) {
				t.Errorf("byte %d, bit %d: %v", i, bit, err)
			}
		}
	}
}

// TestWithoutSum: objects of earlier versions are accepted.
func TestWithoutSum(t *testing.T) {
	for _, text := range []string{`{}`, `{"a":1}`, `{"a":"` + strings.Repeat("x", 200) + `"}`,
		`{"report":{"suite":"quick","runs":[` + strings.Repeat("1,", 100) + `1]}}`} {
		if summed, err := jsonsum.Check([]byte(text)); summed || err != nil {
			t.Errorf("%s: %v, %v", text, summed, err)
		}
	}
}
