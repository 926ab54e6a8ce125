package link

import (
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestLinkIsRenamedInPlace simulates a kernel that creates no eth0 in a sandbox
// while the host has one, and an earlier Fairlead that was killed before it
// renamed the link.
func TestLinkIsRenamedInPlace(t *testing.T) {
	ns := kerneltest.Netns(t)
	inside, err := handles.New(ns).At("")
	if err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, ns, "sh", "-ec", "ip link add fl~eth0 type bridge; ip link set fl~eth0 alias fairlead:web")
	link, err := AddNamed(inside, "eth0", "fairlead:web", 0, func(name string) error {
		if name == "eth0" {
			return unix.EEXIST
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return inside.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	})
	if err != nil || link.Attrs().Name != "eth0" || !rtnl.Ours(link) {
		t.Fatalf("%+v, %v", link, err)
	}
	if links := kerneltest.Run(t, ns, "ip", "-o", "link"); !strings.Contains(links, " eth0:") ||
		strings.Contains(links, "fl~") {
		t.Errorf("the host has %s", links)
	}
}
