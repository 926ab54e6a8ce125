package link

import (
	"strings"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// setHostInterface creates the sub-link on the host, from where another program
// moves it into the sandbox. It does nothing if the sub-link exists in either
// place. The sub-link stays down: if it were up, the host would use it.
func (h *Handle) setHostInterface(want plan.SubLink) error {
	if _, have, err := h.findHostInterface(want); err == nil && have != nil {
		return nil
	} else if err != nil && !nlutil.Absent(err) {
		return err
	}
	host, parent, err := h.Link("", want.Parent)
	if err != nil {
		return err
	}
	have, err := Managed(host, "", want.Name,
		func(have netlink.Link) bool { return h.isSubLink(host, have, parent, want) },
		func() (netlink.Link, error) { return h.addSubLink(host, parent, want) })
	if err != nil {
		return err
	}
	return AdjustEnd(host, have, want.MTU, want.MAC)
}

// findHostInterface returns the sub-link on the host or in the sandbox, where it
// may have any name; nil if it is in neither place.
func (h *Handle) findHostInterface(want plan.SubLink) (*netlink.Handle, netlink.Link, error) {
	host, link, err := h.Link("", want.Name)
	if err == nil && link.Type() == string(want.Kind) && rtnl.Ours(link) {
		return host, link, nil
	}
	inside, err := h.At(want.Inside)
	if err != nil {
		return nil, nil, err
	}
	all, err := nlutil.Retry(inside.LinkList)
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

func (h *Handle) delHostInterface(b plan.SubLink) error {
	handle, link, err := h.findHostInterface(b)
	if err != nil || link == nil {
		return err
	}
	return handle.LinkDel(link)
}

// readHostInterface returns the sub-link if it exists. It compares only the owner:
// in the sandbox another program sets its properties.
func (h *Handle) readHostInterface(want plan.SubLink) (plan.Object, error) {
	_, link, err := h.findHostInterface(want)
	if err != nil || link == nil {
		return nil, err
	}
	found := want
	found.Owner = strings.TrimPrefix(link.Attrs().Alias, plan.Mark+":")
	return found, nil
}
