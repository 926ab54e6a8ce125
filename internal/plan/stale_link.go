package plan

// StaleLink is a link of Fairlead in a sandbox about which nothing else is known,
// because the program that created it was killed before it could remove the link.
// No plan wants one.
type StaleLink struct{ Netns, Name string }

// Ends returns the link.
func (r StaleLink) Ends() []string { return []string{end(r.Netns, r.Name)} }

func (r StaleLink) adjusts(Object) bool { return false }

// Key implements Object. It equals the key of any link with this name.
func (r StaleLink) Key() string { return Link{Netns: r.Netns, Name: r.Name}.Key() }

func (r StaleLink) netns() string { return r.Netns }

// Add implements Object.
func (r StaleLink) Add() []string { return nil }

// Del implements Object.
func (r StaleLink) Del() []string { return Link{Netns: r.Netns, Name: r.Name}.Del() }
