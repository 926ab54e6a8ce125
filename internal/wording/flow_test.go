package wording

import (
	"testing"

	"fairlead/internal/explain/flow"
)

func TestSentence(t *testing.T) {
	e := flow.Explanation{Hops: []flow.Hop{{Where: "host", Link: "eth0"}, {Where: "shop", Link: "fl-web"}}}
	for verdict, want := range map[string]string{
		"":                      "",
		"host drops it":         "Host drops it.",
		"delivered to shop.":    "Delivered to shop.",
		"shop has no route":     "shop has no route.",
		"fl-web is down":        "fl-web is down.",
		"eth0 is down":          "eth0 is down.",
		"shopping is delivered": "Shopping is delivered.",
	} {
		if got := Sentence(e, verdict); got != want {
			t.Errorf("%q: got %q, want %q", verdict, got, want)
		}
	}
}
