package plan

// StaleLink is a link of ours in a sandbox of which no more is known: whoever
// made it was killed before it could be taken away. No plan wants one.
type StaleLink struct{ Netns, Name string }

// Ends names the link.
func (r StaleLink) Ends() []string { return []string{end(r.Netns, r.Name)} }

func (r StaleLink) adjusts(Object) bool { return false }

// Key implements Object. It is that of any link of the name.
func (r StaleLink) Key() string { return Link{Netns: r.Netns, Name: r.Name}.Key() }

// Add implements Object.
func (r StaleLink) Add() []string { return nil }

// Del implements Object.
func (r StaleLink) Del() []string { return Link{Netns: r.Netns, Name: r.Name}.Del() }

// InSandbox returns the sandbox and the name of a link that is in a sandbox with
// all its ends, so that the host has no trace of it.
func InSandbox(o Object) (netns, name string, ok bool) {
	switch o := o.(type) {
	case SubLink:
		return o.Netns, o.Name, o.Netns != ""
	case IPoIB:
		return o.Netns, o.Name, true
	case Device:
		return o.Netns, o.Name, true
	}
	return "", "", false
}
