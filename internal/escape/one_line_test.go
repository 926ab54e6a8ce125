package escape

import "testing"

func TestOneLine(t *testing.T) {
	for output, want := range map[string]string{"": "", "one": "one", "one\n": "one",
		" one\n\n\ttwo \r\nthree": "one; two; three"} {
		if got := OneLine(output); got != want {
			t.Errorf("%q: got %q, want %q", output, got, want)
		}
	}
}
