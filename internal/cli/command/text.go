package command

import (
	"fairlead/internal/api"
)

// Addresses returns the addresses and prefixes of an attachment.
func Addresses(v api.View) []string {
	var all []string
	for _, a := range v.Addresses {
		all = append(all, a.String())
	}
	for _, p := range v.Prefixes {
		all = append(all, p.String())
	}
	return all
}
