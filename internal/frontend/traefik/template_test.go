package traefik

import "testing"

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
