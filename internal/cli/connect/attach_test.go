package connect

import (
	"strings"
	"testing"

	"fairlead/internal/model"
)

// TestMistakesOfAttach: the command refuses words with mistakes itself, before it starts a
// daemon, which takes seconds.
func TestMistakesOfAttach(t *testing.T) {
	for name, s := range map[string]struct {
		change func(*attachFlags)
		says   string
	}{
		"interface with a dot": {func(f *attachFlags) { f.request.Interface = "eth0.1" }, `interface "eth0.1": `},
		"interface lo":         {func(f *attachFlags) { f.request.Interface = "lo" }, `interface "lo"`},
		"long interface":       {func(f *attachFlags) { f.request.Interface = "sixteen-letters-" }, `interface "s`},
		"port without colon":   {func(f *attachFlags) { f.ports = []string{"80"} }, "publish 80: "},
	} {
		var f attachFlags
		s.change(&f)
		if _, err := f.parse([]string{"web", "shop"}); err == nil || !strings.Contains(err.Error(), s.says) {
			t.Errorf("%s: got %v, want %q", name, err, s.says)
		}
	}
}

// TestPublishesOfAttach: -p takes the words of `fairlead publish`.
func TestPublishesOfAttach(t *testing.T) {
	f := attachFlags{ports: []string{"8080:80", "127.0.0.1:5353:53/udp"}}
	r, err := f.parse([]string{"web", "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Publishes) != 2 || r.Publishes[0].Via != model.ViaAuto || r.Publishes[0].HostPorts != model.Port(8080) ||
		r.Publishes[1].Proto != model.UDP {
		t.Errorf("%+v", r.Publishes)
	}
}
