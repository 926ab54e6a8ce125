package auth

import (
	"testing"
)

// TestVerdictsAreCached counts how often passwords are hashed.
func TestVerdictsAreCached(t *testing.T) {
	hashed := 0
	joe := &account{check: func(password string) bool { hashed++; return password == "right" }}
	a := &basicAuth{accounts: map[string]*account{"joe": joe}, unknown: joe}
	for i, step := range []struct {
		user, password string
		want           bool
		hashed         int
	}{
		{"joe", "right", true, 1}, {"joe", "right", true, 1}, {"joe", "wrong", false, 2}, {"joe", "wrong", false, 3},
		{"joe", "right", true, 3}, {"eve", "right", false, 4}, {"eve", "right", false, 5}, {"joe", "right", true, 5},
	} {
		if got := a.authenticate(t.Context(), step.user, step.password); got != step.want || hashed != step.hashed {
			t.Errorf("step %d: %v after %d hashes, want %v after %d", i, got, hashed, step.want, step.hashed)
		}
	}
}

// FuzzDigestParameters checks that no header makes the parser fail.
func FuzzDigestParameters(f *testing.F) {
	for _, header := range []string{`Digest a="b", c=d`, `Digest a="\`, `Digest =`, `Digest a`, `Digest ,,,a=,"=`} {
		f.Add(header)
	}
	f.Fuzz(func(_ *testing.T, header string) { digestParameters(header) })
}
