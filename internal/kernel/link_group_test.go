package kernel

import (
	"testing"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// linksWithGroups returns a host and links of each kind that has a group.
func linksWithGroups(t *testing.T) (*Host, plan.Plan) {
	h, box := withParents(t)
	return h, plan.Plan{
		plan.Link{Name: "fl-net", Kind: plan.Bridge, MTU: 1500, Owner: "net", Group: plan.InternalLinks},
		plan.Link{Name: "fv-web", Kind: plan.Veth, MTU: 1500, Owner: "web", Group: plan.SandboxLinks,
			Peer: "eth0", PeerNetns: box},
		plan.SubLink{Name: "fm-net", Kind: plan.Macvlan, Mode: "bridge", Parent: "eth0", MTU: 1500, Owner: "net",
			Group: plan.SandboxLinks},
	}
}

// attrsOf returns the attributes of the host's link that the object describes, and
// the group that it must have.
func attrsOf(t *testing.T, h *Host, o plan.Object) (*netlink.LinkAttrs, plan.LinkGroup) {
	t.Helper()
	name, group := "", plan.LinkGroup(0)
	switch o := o.(type) {
	case plan.Link:
		name, group = o.Name, o.Group
	case plan.SubLink:
		name, group = o.Name, o.Group
	}
	link, err := h.rtnl.LinkByName("", name)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs(), group
}

// TestLinksAreInTheirGroupBeforeTheyAreUp follows the kernel's messages about new
// links: no packet may arrive on a link that the rules do not match.
func TestLinksAreInTheirGroupBeforeTheyAreUp(t *testing.T) {
	h, links := linksWithGroups(t)
	done := make(chan struct{})
	defer close(done)
	updates := make(chan netlink.LinkUpdate, 1000)
	if err := h.ns.Do(func() error { return netlink.LinkSubscribe(updates, done) }); err != nil {
		t.Fatal(err)
	}
	for _, o := range links {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
		attrs, group := attrsOf(t, h, o)
		for isUp := false; !isUp; {
			u := <-updates
			if u.Attrs().Index != attrs.Index || u.Header.Type != unix.RTM_NEWLINK {
				continue
			}
			if isUp = u.Attrs().RawFlags&unix.IFF_UP != 0; isUp && u.Attrs().Group != uint32(group) {
				t.Errorf("%s is up in group %d, want %d", attrs.Name, u.Attrs().Group, group)
			}
		}
	}
}

// TestLinksGetTheirGroup adjusts links without a group, which an older Fairlead has
// created, and links whose group another program has changed. They are not replaced.
func TestLinksGetTheirGroup(t *testing.T) {
	h, links := linksWithGroups(t)
	for _, o := range links {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
		attrs, group := attrsOf(t, h, o)
		for _, other := range []string{"default", "7"} {
			h.run(t, "ip", "link", "set", attrs.Name, "group", other)
			h.Release()
			got, err := h.read(o)
			if err != nil || got == nil || got == o {
				t.Fatalf("in group %s, %+v is read as %+v, %v", other, o, got, err)
			}
			ops := plan.Diff(plan.Plan{got}, plan.Plan{o})
			for _, c := range ops[0].Commands() {
				h.run(t, "sh", "-c", c)
			}
			if now, _ := attrsOf(t, h, o); now.Group != uint32(group) {
				t.Errorf("after the commands %s, %s is in group %d", plan.Text(ops), now.Name, now.Group)
			}
			h.run(t, "ip", "link", "set", attrs.Name, "group", other)
			if err := h.Set(o); err != nil {
				t.Fatal(err)
			}
			if now, _ := attrsOf(t, h, o); now.Group != uint32(group) || now.Index != attrs.Index {
				t.Errorf("%s was link %d in group %s, and is link %d in group %d, want %d", attrs.Name, attrs.Index,
					other, now.Index, now.Group, group)
			}
		}
	}
}
