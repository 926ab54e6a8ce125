package member_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
)

// address returns 192.0.2.NUMBER.
func address(number byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, number}) }

// copied returns host n with a copy of the state directory of another host, and does not start it.
func (h *host) copied(n int) *host {
	h.Helper()
	c := h.world.host(n)
	c.stop()
	if err := os.CopyFS(c.dir, os.DirFS(h.dir)); err != nil {
		h.Fatal(err)
	}
	return c
}

// frozen waits until a host is frozen for a reason.
func (h *host) frozenBy(why string) {
	h.Helper()
	h.until("the host is frozen: "+why, func() bool {
		s, err := h.Status(h.Context())
		return err == nil && strings.Contains(s.Frozen, why) && h.released.Load()
	})
}

// works waits until a host is not frozen, and its consumers go on.
func (h *host) works() {
	h.Helper()
	h.until("the host works", func() bool {
		s, err := h.Status(h.Context())
		return err == nil && s.Frozen == "" && len(s.Nodes) > 0 && !h.released.Load()
	})
}

// shows waits until the status of a host has a text about a node: a problem, or why the node is frozen.
func (h *host) shows(node, text string) {
	h.Helper()
	h.until("the status has "+text, func() bool {
		s, err := h.Status(h.Context())
		for _, n := range s.Nodes {
			if err == nil && n.Name == node && strings.Contains(n.Frozen+strings.Join(n.Problems, "\n"), text) {
				return true
			}
		}
		return false
	})
}

// writes reports whether a host can commit a transaction.
func (h *host) writes() error {
	_, err := h.Commit(h.Context(), kv.Txn{Then: []kv.Change{{Key: "x", Value: []byte("1")}}})
	return err
}

// events returns the details of a kind of event so far.
func (h *host) frozenEvents() (all []string) {
	for {
		select {
		case e := <-h.noted:
			if e.Kind == api.ClusterFrozen {
				all = append(all, e.Detail)
			}
		default:
			return all
		}
	}
}

// TestClone starts a copy of a node on another host, with an address of its own and then with that of the node. It is
// frozen, and all nodes show it. The node goes on.
func TestClone(t *testing.T) {
	for name, at := range map[string]byte{"another address": 7, "the same address": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two, _ := newWorld(t).three()
			clone := two.copied(7)
			clone.own(address(at))
			clone.start()
			clone.frozenBy("another host acts as node host2")
			one.shows("host2", "another host with the addresses "+address(at).String()+" has a copy of this node")
			two.shows("host2", "another host with the addresses "+address(at).String())
			for what, commit := range map[string]func() error{
				"Commit": clone.writes,
				"CommitAnyway": func() error {
					_, err := clone.CommitAnyway(t.Context(), kv.Txn{Then: []kv.Change{{Key: "x", Value: []byte("1")}}})
					return err
				},
				"drain": func() error { return clone.Drain(t.Context(), api.ClusterNodeRequest{Node: "host1"}) },
			} {
				if err := commit(); !errors.Is(err, kv.ErrFrozen) {
					t.Errorf("%s of a copy: %v", what, err)
				}
			}
			if len(clone.seen) > 0 {
				t.Error("the consumers of a copy get a snapshot")
			}
			if events := clone.frozenEvents(); len(events) != 1 || !strings.Contains(events[0], "cluster takeover") {
				t.Errorf("the events of a copy: %q", events)
			}
			if err := two.writes(); err != nil {
				t.Errorf("the node beside its copy: %v", err)
			}
			if _, err := clone.Leave(t.Context(), api.ClusterNodeRequest{Force: true}); err != nil {
				t.Errorf("a copy leaves: %v", err)
			}
			two.works()
			one.knows("host1 host2 host3")
			if err := two.writes(); err != nil {
				t.Errorf("the node after its copy has left: %v", err)
			}
		})
	}
}

// TestCloneWithoutStore starts a copy of a node while etcd does not answer it.
func TestCloneWithoutStore(t *testing.T) {
	one, two, _ := newWorld(t).three()
	clone := two.copied(7)
	clone.client.Set(kvtest.Refused)
	clone.start()
	if err := clone.writes(); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("a copy without etcd writes: %v", err)
	}
	clone.client.Set(kvtest.Works)
	clone.frozenBy("another host acts as node host2")
	one.shows("host2", "has a copy of this node's state")
}

// TestBothStart starts a node and its copy at the same time. The node goes on.
func TestBothStart(t *testing.T) {
	one, two, _ := newWorld(t).three()
	clone := two.copied(7)
	clone.own(address(2))
	two.stop()
	two.client.EndLease()
	removeAll(t, two.run) // as a reboot does
	clone.start()
	two.start()
	clone.frozenBy("another host acts as node host2")
	two.works()
	one.until("host2 writes", func() bool { return two.writes() == nil })
}

// removeAll deletes the files in a directory.
func removeAll(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestart restarts a node whose hardware addresses have all changed, and reboots it without such a change. It is
// never frozen. With both it is, because a copy looks the same.
func TestRestart(t *testing.T) {
	_, two, _ := newWorld(t).three()
	begin := func(mac byte) {
		t.Helper()
		two.stop()
		two.mu.Lock()
		two.links = []member.Link{{Hardware: net.HardwareAddr{2, 0, 0, 0, 0, mac}, Addresses: []netip.Addr{address(2)}}}
		two.mu.Unlock()
		two.start()
		two.until("host2 has its records", func() bool { return two.names() == "host1 host2 host3" })
	}
	begin(9)
	two.works()
	two.until("host2 writes", func() bool { return two.writes() == nil })
	two.until("the record has the hardware address", func() bool {
		return two.recorded(net.HardwareAddr{2, 0, 0, 0, 0, 9})
	})
	two.stop()
	removeAll(t, two.run)
	begin(9)
	two.works()
	two.until("host2 writes", func() bool { return two.writes() == nil })
	if events := two.frozenEvents(); len(events) > 0 {
		t.Errorf("a node that restarts is frozen: %q", events)
	}
	two.stop()
	removeAll(t, two.run)
	begin(2)
	two.frozenBy("another host acts as node host2")
}

// TestHostWithoutHardwareAddress reboots hosts whose links have no hardware address: of a tunnel, and of loopback. Such
// a host is recognised by its machine, and only if it has one and all of the node's addresses.
func TestHostWithoutHardwareAddress(t *testing.T) {
	const machine = "3d1219c7c4c5404aaa1f6d2a48adfda4"
	for name, c := range map[string]struct {
		first, then string
		address     byte
		frozen      bool
	}{
		"the same machine":            {machine, machine, 2, false},
		"another machine":             {machine, "0" + machine[1:], 2, true},
		"no machine":                  {"", "", 2, true},
		"a copy with another address": {machine, machine, 7, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			one, two := w.host(1), w.host(2)
			if err := one.init(); err != nil {
				t.Fatal(err)
			}
			begin := func(machine string, at byte) {
				two.stop()
				two.machine = machine
				two.mu.Lock()
				two.links = []member.Link{{Hardware: net.HardwareAddr(address(at).AsSlice())},
					{Hardware: make(net.HardwareAddr, 6), Addresses: []netip.Addr{address(at)}}}
				two.mu.Unlock()
				two.start()
			}
			begin(c.first, 2)
			if err := two.join(one.token(api.ClusterTokenRequest{})); err != nil {
				t.Fatal(err)
			}
			two.works()
			two.stop()
			removeAll(t, two.run) // the reboot
			begin(c.then, c.address)
			if c.frozen {
				two.frozenBy("another host acts as node host2")
				return
			}
			two.works()
			two.until("host2 writes", func() bool { return two.writes() == nil })
		})
	}
}

// TestMachine reads the identity of machines from their files.
func TestMachine(t *testing.T) {
	const id, uuid = "3d1219c7c4c5404aaa1f6d2a48adfda4", "4C4C4544-0042-3510-8051-B4C04F564233"
	for _, c := range []struct{ id, uuid, want string }{
		{"", uuid, ""}, {"uninitialized", uuid, ""}, {id, "", id}, {id, uuid, id + " " + strings.ToLower(uuid)},
	} {
		root := t.TempDir()
		for name, text := range map[string]string{"etc/machine-id": c.id, "sys/class/dmi/id/product_uuid": c.uuid} {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if text == "" {
				continue
			}
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := member.Machine(root); got != c.want {
			t.Errorf("ID %q, UUID %q: %q, want %q", c.id, c.uuid, got, c.want)
		}
	}
}

// recorded reports whether the node's record has the hash of a hardware address.
func (h *host) recorded(mac net.HardwareAddr) bool {
	have, _, err := record.Get[record.Node](h.store.Snapshot(), record.Key(record.Nodes, h.id()))
	sum := sha256.Sum256(mac)
	return err == nil && slices.Contains(have.Instance.Hardware, hex.EncodeToString(sum[:8]))
}

// TestTakeover lets a copy act as the node after the node has ended for good. The node is frozen when it comes back.
func TestTakeover(t *testing.T) {
	one, two, _ := newWorld(t).three()
	clone := two.copied(7)
	clone.start()
	clone.frozenBy("another host acts as node host2")
	take := func(force bool) error {
		return clone.SetHost(t.Context(),
			api.ClusterHost{Addresses: []netip.Addr{address(7)}, Takeover: true, Force: force})
	}
	clone.refuses("take over from a node that is alive", take(true), api.Conflict, "is alive")
	clone.refuses("a new address of a copy", clone.SetHost(t.Context(), api.ClusterHost{
		Addresses: []netip.Addr{address(7)}}), api.Conflict, "cluster takeover --force")
	two.stop()
	two.client.EndLease()
	clone.until("the copy knows that the node has ended", func() bool {
		return !strings.Contains(take(false).Error(), "is alive")
	})
	clone.refuses("take over without a guarantee", take(false), api.Conflict, "use --force")
	if err := take(true); err != nil {
		t.Fatal(err)
	}
	clone.works()
	if err := clone.writes(); err != nil {
		t.Errorf("a copy that acts as the node: %v", err)
	}
	var said string
	one.until("the others reach the copy", func() bool {
		return one.Peer(t.Context(), clone.id(), "echo", "x", &said) == nil
	})
	two.start()
	two.frozenBy("another host acts as node host2")
}

// TestRecognisedHostIsNoCopy: a host that was reported as a copy until it was recognised is shown as one no longer.
func TestRecognisedHostIsNoCopy(t *testing.T) {
	_, two, _ := newWorld(t).three()
	node, _, err := record.Get[record.Node](two.store.Snapshot(), record.Key(record.Nodes, two.id()))
	if err != nil || node.Instance.ID == "" {
		t.Fatalf("the node's record: %+v, %v", node, err)
	}
	key := record.Key(record.Clones, two.id(), node.Instance.ID)
	if _, err := two.client.Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: key,
		Value: record.Encode(record.Clone{}), Leased: true}}}); err != nil {
		t.Fatal(err)
	}
	two.until("the host is no copy", func() bool { _, known := two.store.Snapshot().Get(key); return !known })
}

// TestAddressIsGone takes the address of a node away from its host, gives it back, and gives the node another one.
func TestAddressIsGone(t *testing.T) {
	one, two, _ := newWorld(t).three()
	two.own(address(22))
	two.frozenBy("does not have the address 192.0.2.2 of node host2: it has 192.0.2.22")
	one.shows("host2", "does not have the address 192.0.2.2 of node host2")
	if err := two.writes(); !errors.Is(err, kv.ErrFrozen) {
		t.Errorf("a node without its address writes: %v", err)
	}
	two.own(address(2))
	two.works()
	two.own(address(22))
	two.frozenBy("does not have the address")
	readdress := func(to byte) error {
		return two.SetHost(t.Context(), api.ClusterHost{Addresses: []netip.Addr{address(to)}})
	}
	two.refuses("an address that the host does not have", readdress(99), api.Invalid,
		"address 192.0.2.99: this host does not have it: it has 192.0.2.22")
	two.own(address(22), address(1))
	two.refuses("the address of another node", readdress(1), api.Conflict,
		"node host1 already has the address 192.0.2.1")
	if err := readdress(22); err != nil {
		t.Fatal(err)
	}
	two.works()
	var said string
	one.until("the others reach the node at its new address", func() bool {
		return one.Peer(t.Context(), two.id(), "echo", "x", &said) == nil
	})
	two.stop()
	two.start()
	two.works()
	one.until("the others reach the node after a restart", func() bool {
		return one.Peer(t.Context(), two.id(), "echo", "x", &said) == nil
	})
}

// TestOneAddressIsGone takes one of two addresses of a node away from its host. The node goes on, all nodes show the
// problem, and the others reach it at the other address. Without the other one it is frozen.
func TestOneAddressIsGone(t *testing.T) {
	one, two, _ := newWorld(t).three()
	second := netip.MustParseAddr("2001:db8::2")
	two.own(address(2), second)
	if err := two.SetHost(t.Context(), api.ClusterHost{Addresses: []netip.Addr{address(2), second}}); err != nil {
		t.Fatal(err)
	}
	one.until("host1 knows both addresses", func() bool {
		n, _, err := record.Get[record.Node](one.store.Snapshot(), record.Key(record.Nodes, two.id()))
		return err == nil && len(n.Addresses) == 2
	})
	one.mu.Lock()
	one.silent = address(2).String()
	one.mu.Unlock()
	two.own(second)
	const lacks = "does not have the address 192.0.2.2 of the node"
	one.shows("host2", lacks)
	two.shows("host2", lacks)
	two.works()
	if err := two.writes(); err != nil {
		t.Errorf("a node without one of its addresses writes: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var said string
	if err := one.Peer(ctx, two.id(), "echo", "x", &said); err != nil {
		t.Errorf("ask a node without its first address: %v", err)
	}
	two.stop()
	two.start()
	two.works()
	two.shows("host2", lacks)
	if events := two.frozenEvents(); len(events) > 0 {
		t.Errorf("a node with one of its addresses was frozen: %q", events)
	}
	two.own(address(22))
	two.frozenBy("does not have the address 192.0.2.2, 2001:db8::2 of node host2")
	two.own(address(2), second)
	two.works()
	one.until("host1 shows no problem of the addresses", func() bool {
		s, err := one.Status(t.Context())
		return err == nil && len(s.Nodes) == 3 && !strings.Contains(strings.Join(s.Nodes[0].Problems, "")+
			strings.Join(s.Nodes[1].Problems, "")+strings.Join(s.Nodes[2].Problems, ""), lacks)
	})
}

// TestAddressOfNoLink creates and joins clusters with an address that the host does not have.
func TestAddressOfNoLink(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	one.own(address(21))
	one.refuses("init", one.init(), api.Invalid, "address 192.0.2.1: this host does not have it: it has 192.0.2.21")
	one.own(address(1))
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	two.own(address(22))
	two.refuses("join", two.join(one.token(api.ClusterTokenRequest{})), api.Invalid, "this host does not have it")
}
