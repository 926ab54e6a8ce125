package traefik

import (
	"slices"
	"strings"
	"testing"
)

// TestFieldTexts checks that fields.txt has one line for each field of the schema, and no other.
func TestFieldTexts(t *testing.T) {
	d := newDescriber()
	d.gateway()
	d.cluster()
	var names []string
	for line := range strings.Lines(fieldTexts) {
		name, text, _ := strings.Cut(line, ": ")
		switch {
		case slices.Contains(names, name):
			t.Errorf("%s has two lines", name)
		case !d.used[name]:
			t.Errorf("%s is no field", name)
		case strings.TrimSpace(text) == "":
			t.Errorf("%s has no text", name)
		}
		names = append(names, name)
	}
	for name := range d.used {
		if !slices.Contains(names, name) {
			t.Errorf("%s has no line", name)
		}
	}
	for name := range d.words {
		if !d.used[name] {
			t.Errorf("%s has words, and is no field", name)
		}
	}
}
