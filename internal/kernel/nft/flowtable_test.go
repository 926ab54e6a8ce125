package nft

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// flowtableTest opens the nftables of a new namespace with pairs of links, whose names are as long
// as names can be. It returns false on a kernel without flowtables, which refuses them.
func flowtableTest(t *testing.T, pairs int) (h *Handle, devices []string, ok bool) {
	t.Helper()
	h = openTest(t)
	if err := h.SetFlowtable([]string{"lo"}); err != nil {
		return nil, nil, false
	}
	if err := h.DelFlowtable(plan.Flowtable{}); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for i := range pairs {
		one, other := fmt.Sprintf("one-of-pair-%03d", i), fmt.Sprintf("two-of-pair-%03d", i)
		fmt.Fprintf(&script, "link add %s type veth peer name %s\n", one, other)
		devices = append(devices, one, other)
	}
	kerneltest.Run(t, h.ns, "sh", "-c", "ip -batch - <<EOF\n"+script.String()+"EOF")
	return h, devices, true
}

// tableOwner is NFT_TABLE_F_OWNER (linux/netfilter/nf_tables.h): only its creator may change the table.
const tableOwner = 2

// devicesOf returns the devices of the flowtable; nil if there is no table.
func devicesOf(t *testing.T, h *Handle) []string {
	t.Helper()
	f, _, err := h.nft.readFlows()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(f.devices))
}

// TestWithoutFlows deletes entries of conntrack: the handle can be used meanwhile, and the table
// is complete afterwards, also if a link has been deleted. A failed deletion is returned. If
// another program prevents the table, that is no failure of the deletion.
func TestWithoutFlows(t *testing.T) {
	h, devices, ok := flowtableTest(t, 2)
	if !ok {
		t.Run("no flowtable", func(t *testing.T) {
			fails := errors.New("busy")
			unrestored, err := WithoutFlows(openTest(t), func(had bool) error {
				if had {
					t.Error("there was a flowtable")
				}
				return fails
			})
			if unrestored != nil || !errors.Is(err, fails) {
				t.Errorf("%v, %v", unrestored, err)
			}
		})
		return
	}
	link := plan.FlowtableLink{Link: devices[0]}
	if err := errors.Join(h.SetFlowtable(devices), h.SetFlowtableLink(link)); err != nil {
		t.Fatal(err)
	}
	fails := errors.New("busy")
	unrestored, err := WithoutFlows(h, func(had bool) error {
		if now := devicesOf(t, h); !had || now != nil {
			t.Errorf("meanwhile the flowtable has %v", now)
		}
		if _, err := h.FlowLinks(); err != nil { // locks the handle
			t.Error(err)
		}
		kerneltest.Run(t, h.ns, "ip", "link", "delete", devices[2])
		return fails
	})
	links, failed := h.FlowLinks()
	now := devicesOf(t, h)
	if !slices.Equal(now, devices[:2]) || !links[devices[0]] || len(links) != 1 {
		t.Errorf("afterwards the flowtable has %v, links %v", now, links)
	}
	if unrestored != nil || !errors.Is(err, fails) || failed != nil {
		t.Errorf("%v, %v, %v", unrestored, err, failed)
	}
	other, err := Open(h.rtnl)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	unrestored, err = WithoutFlows(h, func(bool) error {
		b := other.begin()
		b.step(unix.NFT_MSG_NEWTABLE, toMake, flowsTable().Table, "",
			func() { b.number(unix.NFTA_TABLE_FLAGS, tableOwner) })
		return b.commit()
	})
	if unrestored == nil || err != nil {
		t.Errorf("another program has the table: %v, %v", unrestored, err)
	}
}

// TestManyDevices has a flowtable with more devices than Fairlead gives it, as an earlier build
// could leave. The daemon does not take its own replacement of it for a change by another
// program: then it would replace it again and again. It gets no further device.
func TestManyDevices(t *testing.T) {
	h, devices, ok := flowtableTest(t, 126)
	if !ok {
		return
	}
	w, err := watch.New(t.Context(), watch.Config{Net: h.rtnl, NFT: h,
		Concerns: func(*watch.Matcher, plan.Object) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	f := flows{links: map[string]bool{}, devices: map[string]bool{}}
	for _, name := range devices[:250] {
		f.devices[name] = true
	}
	b := h.begin()
	b.makeFlows(f)
	if err := b.commit(); err != nil {
		t.Fatal(err)
	}
	if had, err := h.EndFlows(); !had || err != nil {
		t.Errorf("the connections do not end: %v, %v", had, err)
	}
	kerneltest.Run(t, h.ns, "nft", "add table inet last")
	<-w.RulesChanged()
	if w.Take().All() {
		t.Error("the watcher has lost messages about the flowtable")
	}
	if n := len(devicesOf(t, h)); n != 250 {
		t.Errorf("the flowtable has %d devices", n)
	}
	if err := h.SetFlowtable(devices[250:]); err == nil {
		t.Error("the flowtable gets another device")
	}
}
