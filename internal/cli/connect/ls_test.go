package connect

import (
	"slices"
	"testing"
)

func TestFew(t *testing.T) {
	if got := few([]string{"1", "2", "3", "4"}); len(got) != 4 {
		t.Errorf("four: %q", got)
	}
	if got, want := few([]string{"1", "2", "3", "4", "5", "6"}),
		[]string{"1", "2", "3", "4", "and 2 more"}; !slices.Equal(got, want) {
		t.Errorf("six: got %q, want %q", got, want)
	}
}
