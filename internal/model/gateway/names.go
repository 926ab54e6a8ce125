package gateway

import "strings"

// WithoutOwner returns the name that an object of labels has while no other container defines the name:
// NAME@docker for NAME.OWNER@docker. Names in labels have no dots.
func WithoutOwner(name string) string {
	base, labels := strings.CutSuffix(name, "@docker")
	short, _, qualified := strings.Cut(base, ".")
	if !labels || !qualified {
		return name
	}
	return short + "@docker"
}
