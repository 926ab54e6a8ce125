package gateway

import (
	"reflect"
	"slices"
	"testing"
)

// nested has texts with a tag at each place that a value of the model can have one.
type nested struct {
	Name   string   `file:"text"`
	Names  []string `file:"lines"`
	Other  string
	Below  *nested
	List   []nested
	ByName map[string]nested
}

func TestTextsAreFoundEverywhere(t *testing.T) {
	v := &nested{Name: "a", Names: []string{"b", ""}, Other: "no", Below: &nested{Name: "c"},
		List: []nested{{Name: "-----BEGIN CERTIFICATE-----"}, {Name: "d"}}, ByName: map[string]nested{"x": {Name: "e"}}}
	if got, want := Files(v), []string{"a", "b", "c", "d", "e"}; !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if got, want := Files(*v), []string{"a", "b", "c", "d", "e"}; !slices.Equal(got, want) {
		t.Errorf("files of a value that is no pointer %q, want %q", got, want)
	}
	Texts(v, "file", func(text Text) { *text.Value = text.Tag + " of " + text.Field })
	if v.Name != "text of Name" || v.Names[0] != "lines of Names" || v.List[1].Name != "text of Name" ||
		v.Other != "no" {
		t.Errorf("changed to %+v", v)
	}
}

func TestClonesShareNothing(t *testing.T) {
	v := &nested{Names: []string{"a"}, Below: &nested{Name: "b"}, List: []nested{{Name: "c"}},
		ByName: map[string]nested{"x": {Names: []string{"d"}}}}
	c := Clone(v)
	if !reflect.DeepEqual(c, v) {
		t.Errorf("cloned to %+v", c)
	}
	c.Names[0], c.Below.Name, c.List[0].Name, c.ByName["x"].Names[0] = "w", "x", "y", "z"
	if v.Names[0] != "a" || v.Below.Name != "b" || v.List[0].Name != "c" || v.ByName["x"].Names[0] != "d" {
		t.Errorf("the original is %+v", v)
	}
}

// TestProvidersAreCompleted checks the names of the providers, and that a provider without anything to read is off.
func TestProvidersAreCompleted(t *testing.T) {
	if got, want := ProviderNames(), []string{"docker", "swarm", "file"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	p := Providers{Docker: &Docker{LabelScope: "house"}, File: &File{}}
	remarks := p.Complete()
	if p.File != nil || p.Docker == nil || len(remarks) != 2 || remarks[0].Key != "docker.labelScope" ||
		!remarks[0].Mistake || remarks[1].Key != "file" || remarks[1].Mistake {
		t.Errorf("%+v with the remarks %+v", p, remarks)
	}
}
