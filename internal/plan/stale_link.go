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

// Add implements Object.
func (r StaleLink) Add() []string { return nil }

// Del implements Object.
func (r StaleLink) Del() []string { return Link{Netns: r.Netns, Name: r.Name}.Del() }

// InSandbox returns the sandbox and the name of a link whose ends are all in a
// sandbox, so that no part of it is visible on the host. It returns false for other
// objects.
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
