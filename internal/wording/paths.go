package wording

import (
	"fairlead/internal/paths"
	"fairlead/internal/promise"
)

// PathName returns the name of a path, e.g. bridge+nat.
func PathName(p paths.Path) string {
	if p.Via == "" {
		return string(p.Driver)
	}
	return string(p.Driver) + "+" + string(p.Via)
}

// YesNo returns whether a path keeps a promise, in words.
func YesNo(a promise.Answer) string {
	if a.Kept {
		return "yes"
	}
	return "no"
}
