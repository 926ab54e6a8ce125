package traefik

import (
	"strings"
	"testing"
)

func TestTemplates(t *testing.T) {
	t.Setenv("FAIRLEAD_TEST_ZONE", "a.org")
	for text, want := range map[string]string{
		`{{ normalize "/my_app.Web--1/" }}`:                                                                       "my-app-Web-1",
		`{{ env "FAIRLEAD_TEST_ZONE" | upper | lower }}`:                                                          "a.org",
		`{{ "a.b" | replace "." "-" | quote }}`:                                                                   `"a-b"`,
		`{{ trim " x " }}{{ trimAll "/" "/y/" }}`:                                                                 "xy",
		`{{ trimPrefix "a" "ab" }}{{ trimSuffix "b" "ab" }}`:                                                      "ba",
		`{{ contains "b" "abc" }} {{ hasPrefix "b" "abc" }} {{ hasSuffix "bc" "abc" }}`:                           "true false true",
		`{{ splitList "," "a,b" | join "-" }} {{ splitList "," "a,b" | first }} {{ splitList "," "a,b" | last }}`: "a-b a b",
		`{{ index .Labels "zone" | default "none" }} {{ "x" | default "none" }}`:                                  "none x",
		`{{ coalesce "" "b" "c" }}`:                                                                               "b",
		`{{ range $i := until 3 }}{{ $i }}{{ end }}`:                                                              "012",
		`{{ range list "a" "b" }}{{ . }}{{ end }}`:                                                                "ab",
	} {
		tmpl, err := parseTemplate("test", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := execute(tmpl, struct{ Labels map[string]string }{}); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	tmpl, err := parseTemplate("test", `{{ splitList "," "" | len | index .Labels }}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := execute(tmpl, struct{ Labels map[string]string }{}); err == nil {
		t.Errorf("a template with a wrong type gives %q", got)
	}
}

// TestTemplatesAreBounded expands templates that would take all memory.
func TestTemplatesAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		"{{ range until 100000 }}.{{ end }}":                                                    "",
		"{{ range until 100001 }}.{{ end }}":                                                    "until 100001: want at most 100000",
		"{{ range until 9223372036854775807 }}.{{ end }}":                                       "want at most 100000",
		`{{ range until 9999 }}{{ range until 9999 }}{{ printf "%9999d" 1 }}{{ end }}{{ end }}`: "more than 33554432 bytes",
		`{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`:                         "exceeded maximum template depth",
	} {
		parsed, err := parseTemplate("a", text)
		if err != nil {
			t.Fatal(err)
		}
		expanded, err := execute(parsed, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d bytes, %v, want %q", text, len(expanded), err, want)
		}
	}
}
