package kernel

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// TestDevicesThatCannotBeMoved expects errors for devices that the host needs, and
// that nothing on the host changes.
func TestDevicesThatCannotBeMoved(t *testing.T) {
	for _, c := range []struct {
		name, prepare, device string
		want                  string
	}{
		{"none of that name", "true", "eth9", "the host has no device eth9: `ip link` lists"},
		{"none of that PCI address", "true", "ffff:ff:1f.7", "no network device of this host has that PCI address"},
		{"loopback", "true", "lo", "it is the loopback interface"},
		{"Fairlead's own link", "ip link set nic alias fairlead:web", "nic", "it is Fairlead's own link"},
		{"attached by another name",
			`ip link set nic alias 'fairlead-device:{"device":"0000:3b:02.1","name":"nic","mtu":1500}'`, "nic",
			"already attached as 0000:3b:02.1"},
		{"a bridge's port", "ip link add br0 type bridge; ip link set nic master br0", "nic",
			"it is a port of br0: remove it with `ip link set nic nomaster`"},
		{"the parent of a link", "ip link add mac0 link nic type macvlan", "nic",
			"mac0 (macvlan) uses it as its parent"},
		{"the only default route",
			"ip addr add 192.0.2.2/24 dev nic; ip link set nic up; ip route add default via 192.0.2.1", "nic",
			"the host's default route uses it"},
		{"the only default route, IPv6", "ip link set nic up; ip -6 route add default dev nic", "nic",
			"the host's default route uses it"},
		{"a default route beside another",
			"ip link set nic up; ip link set peer up; ip route add default dev nic; ip route add default dev peer metric 9", "nic", "the host's route to anywhere uses it"},
		{"a route", "ip link set nic up; ip route add 203.0.113.0/24 dev nic", "nic",
			"the host's route to 203.0.113.0/24 uses it"},
		{"a route of another table", "ip link set nic up; ip route add 203.0.113.0/24 dev nic table 7", "nic",
			"the host's route to 203.0.113.0/24 uses it"},
		{"a multipath route",
			"ip link set nic up; ip link set peer up; ip route add 203.0.113.0/24 nexthop dev nic nexthop dev peer",
			"nic", "the host's route to 203.0.113.0/24 uses it"},
		{"many addresses",
			"for i in 1 2 3 4 5 6; do ip addr add 2001:db8:1111:2222:3333:4444:5555:$i/64 dev nic nodad; done", "nic",
			"cannot be saved"},
		{"a kind that cannot leave", "ip link add fixed type bridge", "fixed",
			"a device of this kind (bridge) cannot leave its namespace"},
		{"the name is taken in the sandbox", "true", "nic", "the sandbox has an interface eth0 already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := openTestHost(t)
			sandbox := kerneltest.Netns(t)
			h.run(t, "sh", "-ec", "ip link add nic type veth peer name peer; "+c.prepare)
			if c.name == "the name is taken in the sandbox" {
				taken := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
				if err := sandbox.Do(func() error { return netlink.LinkAdd(taken) }); err != nil {
					t.Fatal(err)
				}
			}
			list := "ip -o -d link | sed 's/ promiscuity.*//'; ip -o addr; ip route show table all"
			before := h.run(t, "sh", "-c", list)
			d := plan.Device{Device: c.device, Netns: sandbox.Path(), Name: "eth0"}
			err := h.Set(d)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
			if c.device == "fixed" { // the kernel refuses it only after it was marked
				if err := h.Del(d); err != nil {
					t.Error(err)
				}
			}
			if after := h.run(t, "sh", "-c", list); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestIPoIBNeedsInfiniBand creates a child on a kernel without InfiniBand. The
// error names the cause, and nothing is left behind.
func TestIPoIBNeedsInfiniBand(t *testing.T) {
	h := openTestHost(t)
	sandbox := kerneltest.Netns(t)
	h.run(t, "ip", "link", "add", "nic", "type", "veth", "peer", "name", "peer")
	child := plan.IPoIB{Netns: sandbox.Path(), Name: "eth0", Parent: "nic", PKey: 0x8001, Owner: "web"}
	err := h.Set(child)
	if err == nil || !strings.Contains(err.Error(), "modprobe ib_ipoib") &&
		!strings.Contains(err.Error(), "nic is not an InfiniBand link") {
		t.Errorf("got %v", err)
	}
	child.Parent = "ib0"
	if err := h.Set(child); err == nil || !strings.Contains(err.Error(), "find parent ib0") {
		t.Errorf("got %v", err)
	}
	if err := h.Del(child); err != nil {
		t.Errorf("delete a missing child: %v", err)
	}
	if have, err := h.Observe(plan.Plan{child}, nil); err != nil || len(have) != 0 {
		t.Errorf("observed %v, %v", have, err)
	}
}

// TestNamespaceReferencesAreClosed counts the process's open files while devices
// are moved again and again.
func TestNamespaceReferencesAreClosed(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "ip", "link", "add", "nic", "type", "veth", "peer", "name", "peer")
	var before int
	for i := range 5 {
		sandbox := kerneltest.Netns(t)
		d := plan.Device{Device: "nic", Netns: sandbox.Path(), Name: fmt.Sprint("eth", i)}
		for range 3 {
			if err := h.Set(d); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Observe(plan.Plan{d}, plan.Plan{d}); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Del(d); err != nil {
			t.Fatal(err)
		}
		h.Release()
		sandbox.Close()
		if now := openFiles(t); i > 0 && now > before {
			t.Errorf("round %d: %d open files, %d before", i, now, before)
		} else {
			before = now
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
