package traefik

import (
	"strings"
	"testing"
)

func TestConstraints(t *testing.T) {
	labels := map[string]string{"zone": "a", "name": "web-1"}
	for text, want := range map[string]bool{
		"":                   true,
		"Label(`zone`, `a`)": true,
		`Label("zone", "b")`: false,
		"!Label(`zone`, `b`) && LabelRegex(`name`, `^web-[0-9]$`)":              true,
		"Label(`zone`,`b`) || (Label(`zone`,`a`) && !LabelRegex(`name`,`web`))": false,
		"Label(`absent`, ``)": true,
	} {
		accept, err := parseConstraints(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if accept(labels) != want {
			t.Errorf("%s: %v, want %v", text, !want, want)
		}
	}
	for text, want := range map[string]string{
		"Label(`a`)":                       "Label has 1 arguments",
		"Tag(`a`, `b`)":                    "want Label or LabelRegex",
		"Label(`a`, b)":                    "want a text in backticks or double quotes",
		"LabelRegex(`a`, `(`)":             "missing closing )",
		"Label(`a`,`b`) + 1":               "want Label",
		"-Label(`a`,`b`)":                  "want Label",
		"Label(`a`,`b`) &&":                "expected operand",
		"Label(`a`,`b`) == Label(`a`,`b`)": "the operator == is not known",
	} {
		if _, err := parseConstraints(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", text, err, want)
		}
	}
}
