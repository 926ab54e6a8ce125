package inspect

import (
	"fmt"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"

	"golang.org/x/sys/unix"
)

// Sandbox is the state of a sandbox that the daemon checks before it attaches it.
type Sandbox struct {
	// Namespace identifies the namespace until the next boot.
	Namespace string
	// ID is the id that the host's namespace has for this one (RTM_GETNSID), or
	// netns.NoID if it has none. The kernel reports the end of the namespace with it.
	ID int
	// Links are the names of the interfaces inside.
	Links []string
	// Default4 and Default6 say that the sandbox has a default route of the family.
	Default4, Default6 bool
}

// DescribeSandbox reads the state of the sandbox at path. The error wraps
// os.ErrNotExist if there is no namespace at path.
func (h *Reader) DescribeSandbox(path string) (Sandbox, error) {
	reader, err := h.readOnly()
	if err != nil {
		return Sandbox{}, err
	}
	defer reader.rtnl.Release()
	s, err := reader.describeSandbox(path)
	if err != nil {
		return s, fmt.Errorf("inspect sandbox %s: %w", path, err)
	}
	return s, nil
}

func (h *Reader) describeSandbox(path string) (Sandbox, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return Sandbox{}, err
	}
	defer ns.Close()
	s := Sandbox{}
	if s.Namespace, err = ns.Identity(); err != nil {
		return s, err
	}
	if s.ID, err = h.rtnl.IDOf(ns); err != nil {
		return s, err
	}
	links, err := h.rtnl.ListLinks(path)
	if err != nil {
		return s, err
	}
	for _, l := range links {
		s.Links = append(s.Links, l.Attrs().Name)
	}
	routes, err := h.rtnl.MainRoutes(path)
	for _, r := range routes {
		if r.Dst == nil || ones(r.Dst.Mask) == 0 {
			v4 := r.Family == unix.AF_INET
			s.Default4, s.Default6 = s.Default4 || v4, s.Default6 || !v4
		}
	}
	return s, err
}

func ones(mask []byte) int { return nlutil.Prefix(make([]byte, len(mask)), mask).Bits() }
