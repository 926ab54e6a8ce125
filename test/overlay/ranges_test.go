package overlay_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/derive"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/test/fabric"
	"fairlead/test/place"
)

// blocks has the records of a cluster whose nodes are the hosts. Each has two blocks of network net:
// 10.9.N.0/30, which has room for three sandboxes, and 10.9.N.64/30.
func blocks(f *fabric.Fabric, driver model.Driver) map[string]any {
	r := map[string]any{"nets/net": record.Network{BlockBits: []int{30}, Direct: driver.Traits().Remote,
		Spec: model.Network{Name: "net", Driver: driver,
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}}}
	if driver.Traits().Overlay {
		n := r["nets/net"].(record.Network)
		n.Spec.Overlay.VNI = 42
		r["nets/net"] = n
	}
	for i, h := range f.Hosts {
		id := fmt.Sprint(i)
		r["nodes/"+id] = record.Node{ID: id, Name: id, Addresses: []netip.Addr{h.Address(0, true)}}
		for j, part := range []int{0, 64} {
			r[fmt.Sprintf("blocks/net/10.9.%d.%d/30", i+1, part)] = record.Block{Node: id, Sequence: int64(j)}
		}
	}
	return r
}

// derived returns the network as host i derives it from the records.
func derived(t *testing.T, records map[string]any, i int) model.Network {
	t.Helper()
	var entries []kv.Entry
	for key, r := range records {
		entries = append(entries, kv.Entry{Key: key, Value: record.Encode(r), Revision: 1})
	}
	table := kv.NewTable(1, entries)
	networks, _, problems := derive.New(fmt.Sprint(i)).Update(kv.Update{Snapshot: table,
		Changed: kv.Diff(kv.NewTable(0, nil), table)})
	if len(networks) != 1 || len(problems) > 0 {
		t.Fatalf("host %d derives %v, %q", i+1, networks, problems)
	}
	return networks[0]
}

// TestNetworkOfBlocks connects three hosts by their blocks. Sandboxes of the first and the further
// block reach each other. Nothing for an address that no sandbox has leaves the host.
func TestNetworkOfBlocks(t *testing.T) {
	for _, driver := range []model.Driver{model.DriverVXLAN, model.DriverRouted} {
		t.Run(string(driver), func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 3})
			before := place.Snapshot(t, f.Hosts[0].Do)
			r := blocks(f, driver)
			var first, further [][]netip.Addr
			for i, h := range f.Hosts {
				full := set(t, h, state(h, derived(t, r, i), box(i), "a", "b", "more"))
				first = append(first, full.Endpoints[0].Addresses)
				further = append(further, full.Endpoints[3].Addresses)
				if want := fmt.Sprintf("[10.9.%d.1] [10.9.%d.64]", i+1, i+1); fmt.Sprint(first[i], further[i]) != want {
					t.Errorf("host %d leases %v %v, want %s", i+1, first[i], further[i], want)
				}
			}
			reach(t, f, first)
			serve(t, f.Hosts[1].In("more"), "more")
			hears(t, f.Hosts[0].In("more"), further[1][0], "more")
			hears(t, f.Hosts[2].Do, further[1][0], "more")
			undrifted(t, f)
			unchanged(t, f.Hosts[0], before)
		})
	}
}

// TestUnknownAddressStaysOnHost counts what another host receives when a sandbox sends to an address of
// no block, and to a sandbox of that host.
func TestUnknownAddressStaysOnHost(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	r := blocks(f, model.DriverVXLAN)
	for i, h := range f.Hosts {
		set(t, h, state(h, derived(t, r, i), box(i)))
	}
	h := f.Hosts[0]
	sh(t, f.Hosts[1].Do, "nft 'add table netdev probe; add chain netdev probe in { type filter hook ingress device "+
		"fx-net priority 0; }; add rule netdev probe in ether daddr & 01:00:00:00:00:00 != 0 counter; "+
		"add rule netdev probe in ip daddr 10.9.200.0/24 counter; add rule netdev probe in ip daddr 10.9.2.1 counter'")
	if conn, err := dial(h.In(box(0)), netip.MustParseAddr("10.9.200.7"), time.Second); err == nil {
		conn.Close()
		t.Error("an address that no sandbox has answers")
	}
	serve(t, f.Hosts[1].In(box(1)), box(1))
	hears(t, h.In(box(0)), netip.MustParseAddr("10.9.2.1"), box(1))
	got := sh(t, f.Hosts[1].Do, "nft list table netdev probe")
	if strings.Count(got, "counter packets ") != 3 || strings.Count(got, "counter packets 0 ") != 2 {
		t.Errorf("another host received packets for unknown addresses, or to all hosts:\n%s", got)
	}
}

// TestMovedEndpoint moves a sandbox with its address to another host.
func TestMovedEndpoint(t *testing.T) {
	for _, driver := range []model.Driver{model.DriverVXLAN, model.DriverRouted} {
		t.Run(string(driver), func(t *testing.T) {
			f := fabric.New(t, fabric.Options{Hosts: 3})
			r := blocks(f, driver)
			for i, h := range f.Hosts {
				set(t, h, state(h, derived(t, r, i), box(i)))
			}
			addr := netip.MustParseAddr("10.9.2.1") // of the block of host 2
			r["moves/net/"+addr.String()] = record.Move{Node: "2"}
			for i, h := range f.Hosts {
				s := state(h, derived(t, r, i), box(i))
				switch i {
				case 1:
					s.Endpoints = nil
				case 2:
					s = state(h, derived(t, r, i), box(i), "moved")
					s.Endpoints[1].Addresses = []netip.Addr{addr}
				}
				set(t, h, s)
			}
			serve(t, f.Hosts[2].In("moved"), "moved")
			hears(t, f.Hosts[0].In(box(0)), addr, "moved")
			h := f.Hosts[1]
			full := set(t, h, state(h, derived(t, r, 1), "new"))
			if got := full.Endpoints[0].Addresses[0]; got == addr {
				t.Errorf("the host leases %s, which a sandbox of another host has", got)
			}
			hears(t, h.In("new"), addr, "moved")
			undrifted(t, f)
		})
	}
}
