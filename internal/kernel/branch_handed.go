package kernel

import (
	"strings"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// setHanded makes the branch on the host, for somebody else to take, unless it
// has been taken. It stays down: up, it would speak on the host's behalf.
func (h *Host) setHanded(want plan.Branch) error {
	if _, have, err := h.findHanded(want); err == nil && have != nil {
		return nil
	} else if err != nil && !absent(err) {
		return err
	}
	host, parent, err := h.link("", want.Parent)
	if err != nil {
		return err
	}
	have, err := ownLink(host, "", want.Name,
		func(have netlink.Link) bool { return h.branches(host, have, parent, want) },
		func() (netlink.Link, error) { return h.addBranch(host, parent, want) })
	if err != nil {
		return err
	}
	return adjustEnd(host, have, want.MTU, want.MAC)
}

// findHanded returns the branch where it waits, or where it has been taken to
// under whatever name; nil if it is in neither place.
func (h *Host) findHanded(want plan.Branch) (*netlink.Handle, netlink.Link, error) {
	host, link, err := h.link("", want.Name)
	if err == nil && link.Type() == string(want.Kind) && ours(link) {
		return host, link, nil
	}
	inside, err := h.at(want.Handed)
	if err != nil {
		return nil, nil, err
	}
	all, err := retry(inside.LinkList)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range all {
		if l.Type() == string(want.Kind) && l.Attrs().Alias == want.Alias() {
			return inside, l, nil
		}
	}
	return nil, nil, nil
}

func (h *Host) delHanded(b plan.Branch) error {
	handle, link, err := h.findHanded(b)
	if err != nil || link == nil {
		return err
	}
	return handle.LinkDel(link)
}

// readHanded returns the branch if it is there: what it is like where it was
// taken to is somebody else's.
func (h *Host) readHanded(want plan.Branch) (plan.Object, error) {
	_, link, err := h.findHanded(want)
	if err != nil || link == nil {
		return nil, err
	}
	found := want
	found.Owner = strings.TrimPrefix(link.Attrs().Alias, plan.Mark+":")
	return found, nil
}
