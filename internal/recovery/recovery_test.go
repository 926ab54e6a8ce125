package recovery_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"fairlead/internal/recovery"
)

// TestObject checks the error and the log of objects that panic: the stack of a place is logged once.
func TestObject(t *testing.T) {
	var text bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	var none []int
	for range 3 {
		err := recovery.Object("router a@file", func() { none[len(none)] = 1 })
		const want = "internal error at recovery_test.go:20: runtime error: index out of range [0] with length 0: report it"
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if n := strings.Count(text.String(), "object=\"router a@file\""); n != 1 {
		t.Errorf("the log has %d entries, want 1:\n%s", n, text.String())
	}
	if !strings.Contains(text.String(), "recovery_test.TestObject") {
		t.Errorf("the log has no stack:\n%s", text.String())
	}
	if err := recovery.Object("service b@file", func() { panic("another place") }); err == nil ||
		!strings.Contains(err.Error(), "another place") || !strings.Contains(text.String(), "service b@file") {
		t.Errorf("error %v, log:\n%s", err, text.String())
	}
	if err := recovery.Object("service c@file", func() {}); err != nil {
		t.Error(err)
	}
}
