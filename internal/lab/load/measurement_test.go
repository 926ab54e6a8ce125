package load

import "testing"

func TestGeneratorBound(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Measurement
		want bool
	}{
		{"both mostly in the kernel", Measurement{ClientGeneratorShare: 0.2, ServerGeneratorShare: 0.4}, false},
		{"the client mostly in its own code", Measurement{ClientGeneratorShare: 0.7, ServerGeneratorShare: 0.1}, true},
		{"the server mostly in its own code", Measurement{ClientGeneratorShare: 0.1, ServerGeneratorShare: 0.7}, true},
	} {
		if got := c.m.GeneratorBound(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestOwnShareIsPartOfStreamTime: two streams that together spend 300 ms in user
// code during 1 s have spent 15 % of their time there.
func TestOwnShareIsPartOfStreamTime(t *testing.T) {
	r := &run{spec: Spec{Streams: 2, Direction: Up}}
	if got := r.own(edge{Mono: 5e9, User: 1e9}, edge{Mono: 6e9, User: 1.3e9}); got < 0.149 || got > 0.151 {
		t.Errorf("own share %g, want 0.15", got)
	}
}
