package addresses_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/addresses"
	"fairlead/internal/cluster/hold"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/vip"
	"fairlead/internal/model"
)

// node is a node that follows the protocol without a host.
type node struct {
	*kvtest.Client
	*addresses.Addresses
	id      string
	mu      sync.Mutex
	machine *vip.Machine
	begin   time.Time
	// answers is true while the node's fence is open.
	answers bool
	events  []string
	kill    context.CancelFunc
}

// world is a cluster with running nodes n0, n1 …, in a bubble of synctest. Their names are host0, host1 ….
type world struct {
	*testing.T
	*kvtest.Store
	nodes []*node
}

var at = netip.MustParseAddr("192.0.2.10")

func newWorld(t *testing.T, nodes int) *world {
	w := &world{T: t, Store: kvtest.New()}
	for i := range nodes {
		n := &node{Client: w.Client(), id: idOf(i), begin: time.Now()}
		w.put(record.Key(record.Nodes, n.id), record.Node{ID: n.id, Name: fmt.Sprint("host", i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}})
		w.put(record.Key(record.Alives, n.id), record.Alive{})
		n.Addresses = addresses.New(addresses.Config{Runner: n, Store: n, Now: time.Now, Note: func(e api.Event) {
			n.events = append(n.events, fmt.Sprint(e.Kind, " ", e.Object, " ", e.Detail))
		}})
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		ctx, kill := context.WithCancel(t.Context())
		n.kill = kill
		go n.run(ctx)
	}
	synctest.Wait()
	return w
}

func (w *world) put(key string, v any) {
	w.Helper()
	w.change(kv.Change{Key: key, Value: record.Encode(v)})
}

func (w *world) change(c kv.Change) {
	w.Helper()
	if _, err := w.Client().Commit(w.Context(), kv.Txn{Then: []kv.Change{c}}); err != nil {
		w.Fatal(err)
	}
}

// run gives the node's snapshots to its Addresses and to its machine of address 192.0.2.10.
func (n *node) run(ctx context.Context) {
	n.machine = vip.New(n.id, at, 0, vip.Env{Wall: time.Now, Nonce: func() string { return fmt.Sprint(time.Now()) }})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	updates := n.Updates(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.act(ctx, func() []vip.Action { return n.machine.Tick(n.now()) })
		case u, ok := <-updates:
			if !ok {
				return
			}
			n.Update(ctx, member.Self{Node: n.id}, u)
			n.act(ctx, func() []vip.Action { return n.machine.See(n.now(), n.view(u.Snapshot)) })
		}
	}
}

// States implements addresses.Runner.
func (n *node) States() []hold.State {
	role := hold.Candidate
	if n.answers {
		role = hold.Holder
	}
	return []hold.State{{Address: at, Role: role, Remaining: 123 * time.Millisecond}}
}

// Force implements addresses.Runner.
func (n *node) Force(netip.Addr) error {
	n.act(context.Background(), func() []vip.Action { return n.machine.Force(n.now()) })
	return nil
}

func (n *node) now() vip.Time { return time.Since(n.begin) + time.Hour }

func (n *node) view(s kv.Snapshot) vip.View {
	v := vip.View{Revision: s.Revision()}
	v.Entry, _ = s.Get(record.Key(record.Addresses, at.String()))
	members := vip.MembersOf(s)
	if r, err := record.Decode[record.Address](v.Entry); err == nil {
		v.Nodes = members.Nodes(r)
	}
	v.Drained, v.Unable = members.Drained(n.id), members.Unable(n.id, at)
	return v
}

// act carries out what the machine wants.
func (n *node) act(ctx context.Context, step func() []vip.Action) {
	n.mu.Lock()
	actions := step()
	n.mu.Unlock()
	for _, action := range actions {
		switch do := action.(type) {
		case vip.Commit:
			go func() {
				limited, cancel := context.WithTimeout(ctx, do.Timeout)
				defer cancel()
				result, err := n.Commit(limited, do.Txn)
				n.act(ctx, func() []vip.Action { return n.machine.Answered(n.now(), do.ID, result, err) })
			}()
		case vip.Open:
			n.answers = true
		case vip.Close:
			n.answers = false
		}
	}
}

// idOf returns the id of a node.
func idOf(n int) string { return fmt.Sprintf("%016x", n) }

// add adds address 192.0.2.10 with a hold time of a second, and waits until a node has it.
func (w *world) add(candidates ...string) {
	w.Helper()
	spec := api.ClusterAddressSpec{Address: netip.PrefixFrom(at, 24), Hold: time.Second, Candidates: candidates}
	if r, err := w.nodes[0].AddAddress(w.Context(), spec); err != nil || !r.Changed {
		w.Fatalf("add the address: %+v, %v", r, err)
	}
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// holder returns the number of the node that answers.
func (w *world) holder() int {
	w.Helper()
	synctest.Wait() // a node answers after its commit
	holder := -1
	for i, n := range w.nodes {
		if n.answers && holder >= 0 {
			w.Fatalf("nodes %d and %d answer", holder, i)
		} else if n.answers {
			holder = i
		}
	}
	return holder
}

// to is a request to move address 192.0.2.10 to a node.
func to(node string) api.ClusterAddressRequest {
	return api.ClusterAddressRequest{Address: at, Node: node}
}

// refused checks that an order fails with a code and a text.
func (w *world) refused(code api.Code, want string, r api.Result, err error) {
	w.Helper()
	if err == nil || api.CodeOf(err) != code || !strings.Contains(err.Error(), want) || r.Changed {
		w.Errorf("the order returned %+v, %s, %v: want %s with %q", r, api.CodeOf(err), err, code, want)
	}
}

// TestAddMoveRemove adds an address, moves it to each node, and removes it.
func TestAddMoveRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.add()
		for i, n := range w.nodes {
			if _, err := n.MoveAddress(t.Context(), to(fmt.Sprint("host", i))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			all, err := w.nodes[0].List()
			if err != nil || w.holder() != i || all[0].Holder != fmt.Sprint("host", i) || all[0].Lease <= 0 ||
				all[0].Target != "" {
				t.Fatalf("after a move to node %d, node %d answers, and the list is %+v, %v", i, w.holder(), all, err)
			}
		}
		if r, err := w.nodes[1].MoveAddress(t.Context(), to("")); err != nil || !r.Changed ||
			w.holder() == 2 {
			t.Errorf("a move to any node: %+v, %v, holder %d", r, err, w.holder())
		}
		var held []string
		for _, e := range w.nodes[0].events {
			if by, found := strings.CutPrefix(e, "address held address 192.0.2.10 by node "); found {
				held = append(held, by[:len("host0")])
			}
		}
		if got := strings.Join(held, " "); !strings.Contains(got, "host0 host1 host2") {
			t.Errorf("by the events the holders were %s", got)
		}
		if r, err := w.nodes[1].RemoveAddress(t.Context(), to("")); err != nil || !r.Changed {
			t.Fatalf("remove the address: %+v, %v", r, err)
		}
		synctest.Wait()
		if all, err := w.nodes[0].List(); err != nil || len(all) > 0 || w.holder() >= 0 {
			t.Errorf("a removed address: %+v, %v, holder %d", all, err, w.holder())
		}
		_, err := w.nodes[0].RemoveAddress(t.Context(), to(""))
		w.refused(api.NotFound, "it has none", api.Result{}, err)
	})
}

// TestRefusedMoves moves an address to nodes that cannot take it.
func TestRefusedMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.put("nodes/"+idOf(1), record.Node{ID: idOf(1), Name: "host1", Drained: true})
		w.nodes[2].kill()
		w.change(kv.Change{Key: "alive/" + idOf(2)})
		w.put("alive/"+idOf(4), record.Alive{Unable: map[netip.Addr]string{at: "link eth0 has no carrier"}})
		w.add("host0", "host1", "host2", "host4")
		move := func(node string) (api.Result, error) { return w.nodes[3].MoveAddress(t.Context(), to(node)) }
		for node, want := range map[string]string{"host1": "node host1 is drained", "host2": "node host2 is not alive",
			"host3": "node host3 is not a candidate: it can move to host0, host1, host2", "": "no other candidate",
			"host4": "node host4 cannot hold it: link eth0 has no carrier"} {
			r, err := move(node)
			w.refused(api.Conflict, want, r, err)
		}
		r, err := move("host9")
		w.refused(api.NotFound, `no node "host9": it has host0, host1`, r, err)
		if r, err := move("host0"); err != nil || r.Changed || w.holder() != 0 {
			t.Errorf("a move to the holder: %+v, %v", r, err)
		}
		w.put("alive/"+idOf(2), record.Alive{}) // of a node that does not run any more
		synctest.Wait()
		if r, err = move("host2"); err == nil || !strings.Contains(err.Error(), "node host0 holds it, because node host2 "+
			"did not take it") || w.holder() != 0 {
			t.Errorf("a move to a dead node: %+v, %v", r, err)
		}
	})
}

// TestMoveToStartingNode moves an address to a node that has just been started again, and must wait before it claims
// an address.
func TestMoveToStartingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.add()
		if _, err := w.nodes[0].MoveAddress(t.Context(), to("host0")); err != nil {
			t.Fatal(err)
		}
		w.nodes[1].kill()
		synctest.Wait()
		go w.nodes[1].run(t.Context())
		w.put("alive/"+idOf(1), record.Alive{Since: time.Now()})
		synctest.Wait()
		if r, err := w.nodes[0].MoveAddress(t.Context(), to("host1")); err != nil || !r.Changed || w.holder() != 1 {
			t.Errorf("%+v, %v, node %d answers", r, err, w.holder())
		}
	})
}

// TestAddAgain adds an address with the same and with other settings.
func TestAddAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.add("host1", "host0")
		spec := api.ClusterAddressSpec{Address: netip.PrefixFrom(at, 24), Hold: time.Second,
			Candidates: []string{"host0", "host1", "host0"}}
		if r, err := w.nodes[1].AddAddress(t.Context(), spec); err != nil || r.Changed || len(r.Notes) == 0 {
			t.Errorf("the same again: %+v, %v", r, err)
		}
		for want, change := range map[string]func(*api.ClusterAddressSpec){
			"hold time 1s":              func(s *api.ClusterAddressSpec) { s.Hold = 2 * time.Second },
			"prefix length 24":          func(s *api.ClusterAddressSpec) { s.Address = netip.PrefixFrom(at, 25) },
			"link that has its subnet":  func(s *api.ClusterAddressSpec) { s.Link = "eth0" },
			"candidates host0, host1)":  func(s *api.ClusterAddressSpec) { s.Candidates = nil },
			"address rm 192.0.2.10` fi": func(s *api.ClusterAddressSpec) { s.Candidates = []string{"host1"} },
		} {
			other := spec
			change(&other)
			r, err := w.nodes[1].AddAddress(t.Context(), other)
			w.refused(api.Conflict, want, r, err)
		}
	})
}

// TestInvalidAddresses adds what no address can be, and addresses that belong to something else.
func TestInvalidAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.put("nets/web", record.Network{BlockBits: []int{26}, Spec: model.Network{Name: "web",
			Driver:  model.DriverVXLAN,
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}})
		synctest.Wait()
		add := func(prefix string, hold time.Duration, link string) (api.Result, error) {
			p, _ := netip.ParsePrefix(prefix)
			return w.nodes[0].AddAddress(t.Context(), api.ClusterAddressSpec{Address: p, Hold: hold, Link: link})
		}
		for _, prefix := range []string{"", "0.0.0.0/24", "192.0.2.0/24", "192.0.2.255/24", "192.0.2.127/25",
			"224.0.0.1/24",
			"127.0.0.1/8", "240.0.0.1/24", "255.255.255.255/31", "fe80::1/64", "2001:db8::/64", "::1/64",
			"::ffff:192.0.2.1/120", "192.0.2.10/32", "2001:db8::1/128"} {
			r, err := add(prefix, 0, "")
			w.refused(api.Invalid, "want", r, err)
		}
		for _, hold := range []time.Duration{-1, 1, 199 * time.Millisecond, 10*time.Second + 1} {
			r, err := add("192.0.2.10/24", hold, "")
			w.refused(api.Invalid, "want 200ms to 10s", r, err)
		}
		for _, link := range []string{"a b", "..", "-x", "a/b", strings.Repeat("a", 16)} {
			r, err := add("192.0.2.10/24", 0, link)
			w.refused(api.Invalid, "want the name of a link", r, err)
		}
		r, err := add("10.9.200.1/16", 0, "")
		w.refused(api.Conflict, "subnet 10.9.0.0/16 of the cluster's network web", r, err)
		r, err = add("192.0.2.2/24", 0, "")
		w.refused(api.Conflict, "own address of node host1", r, err)
		for _, prefix := range []string{"192.0.2.128/24", "192.0.2.10/31", "2001:db8::10/64"} {
			if r, err := add(prefix, 0, ""); err != nil || !r.Changed {
				t.Errorf("add %s: %+v, %v", prefix, r, err)
			}
		}
		if r, err := add("192.0.2.77/32", 0, "eth0"); err != nil || !r.Changed {
			t.Errorf("add a single address with a link: %+v, %v", r, err)
		}
	})
}

// TestRemoveOfDeadHolder removes an address whose holder does not run: another node deletes the record after
// the lease. If no node may, the order says so, and the record stays marked.
func TestRemoveOfDeadHolder(t *testing.T) {
	for _, candidates := range [][]string{{"host0", "host1"}, {"host1"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2)
			w.add(candidates...)
			if w.holder() != 1 {
				if _, err := w.nodes[0].MoveAddress(t.Context(), to("host1")); err != nil {
					t.Fatal(err)
				}
			}
			w.nodes[1].kill()
			synctest.Wait()
			begin := time.Now()
			r, err := w.nodes[0].RemoveAddress(t.Context(), to(""))
			all, _ := w.nodes[0].List()
			if len(candidates) == 2 {
				if err != nil || !r.Changed || len(all) > 0 || time.Since(begin) < time.Second {
					t.Errorf("after %s: %+v, %v, %+v", time.Since(begin), r, err, all)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "no other node may delete") || len(all) != 1 ||
				!all[0].Removed {
				t.Errorf("%+v, %v, %+v", r, err, all)
			}
			r, err = w.nodes[0].AddAddress(t.Context(), api.ClusterAddressSpec{Address: netip.PrefixFrom(at, 24)})
			w.refused(api.Conflict, "being removed", r, err)
			r, err = w.nodes[0].RemoveAddress(t.Context(), forced())
			w.refused(api.Conflict, "node host1, is alive", r, err)
			w.change(kv.Change{Key: "alive/" + idOf(1)})
			synctest.Wait()
			if r, err = w.nodes[0].RemoveAddress(t.Context(), forced()); err != nil || !r.Changed {
				t.Errorf("remove with force: %+v, %v", r, err)
			}
		})
	}
}

func forced() api.ClusterAddressRequest { return api.ClusterAddressRequest{Address: at, Force: true} }

// TestClaim claims an address for a node that the dead holder does not list.
func TestClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.add("host0")
		r, err := w.nodes[1].ClaimAddress(t.Context(), forced())
		w.refused(api.Conflict, "node host0, is alive", r, err)
		w.holderDies()
		synctest.Wait()
		if w.holder() >= 0 {
			t.Fatalf("node %d, which the holder does not list, answers", w.holder())
		}
		r, err = w.nodes[1].ClaimAddress(t.Context(), to(""))
		w.refused(api.Conflict, "make sure that it is down, and use --force", r, err)
		if r, err = w.nodes[1].ClaimAddress(t.Context(), forced()); err != nil || !r.Changed {
			t.Errorf("claim: %+v, %v", r, err)
		}
		synctest.Wait()
		if all, err := w.nodes[1].List(); err != nil || w.holder() != 1 || !all[0].Answers ||
			all[0].Holder != "host1" {
			t.Errorf("after the claim node %d answers, and the list is %+v, %v", w.holder(), all, err)
		}
		if r, err = w.nodes[1].ClaimAddress(t.Context(), forced()); err != nil || r.Changed {
			t.Errorf("claim again: %+v, %v", r, err)
		}
	})
}

// holderDies ends node 0, which holds the address and lists itself alone, and waits until it is known to be dead.
func (w *world) holderDies() {
	w.nodes[0].kill()
	w.nodes[0].answers = false
	w.change(kv.Change{Key: "alive/" + idOf(0)})
	have, _, _ := record.Get[record.Address](w.Snapshot(), "addrs/192.0.2.10")
	have.Candidates = nil // Listed is still the holder alone
	w.put("addrs/192.0.2.10", have)
	time.Sleep(10 * time.Second)
}

// TestClaimsAtOnce claims an address on two nodes: one gets it, and the order of the other names that node. Mostly the
// other one loses while it waits for the address; it can also see the new holder before.
func TestClaimsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.add("host0")
		w.holderDies()
		var errs [3]error
		var claims sync.WaitGroup
		for n := 1; n < 3; n++ {
			claims.Go(func() { _, errs[n] = w.nodes[n].ClaimAddress(t.Context(), forced()) })
		}
		claims.Wait()
		winner := w.holder()
		if winner < 1 || errs[winner] != nil {
			t.Fatalf("node %d answers, and the orders return %v", winner, errs)
		}
		if err := errs[3-winner]; err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("node host%d", winner)) {
			t.Errorf("node host%d has the address, and the other order returns %v", winner, err)
		}
	})
}

// TestClaimThatFails claims an address for a node that sees no change of its record: it still names the dead holder, which
// has not taken the address.
func TestClaimThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.add("host0")
		w.nodes[0].kill()
		w.nodes[0].answers = false
		w.change(kv.Change{Key: "alive/" + idOf(0)})
		synctest.Wait()
		w.nodes[1].kill()
		synctest.Wait()
		_, err := w.nodes[1].ClaimAddress(t.Context(), forced())
		if err == nil || !strings.Contains(err.Error(), "this node does not hold it yet") {
			t.Errorf("the order returns %v", err)
		}
	})
}

// TestDeclared adds the addresses of a Spec.
func TestDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		one := api.ClusterAddressSpec{Address: netip.PrefixFrom(at, 24), Hold: time.Second}
		wrong := api.ClusterAddressSpec{Address: netip.MustParsePrefix("192.0.2.0/24")}
		apply := func(dry bool, all ...api.ClusterAddressSpec) string {
			changes, err := w.nodes[0].Apply(t.Context(), all, dry)
			return fmt.Sprint(changes, " ", err)
		}
		for _, step := range []struct{ got, want string }{
			{apply(true, one), "[address 192.0.2.10/24: created] <nil>"},
			{apply(false, one, wrong), "[] addresses[1]: virtual address 192.0.2.0/24: it is the network or"},
			{apply(false, one), "[address 192.0.2.10/24: created] <nil>"},
			{apply(false, one), "[] <nil>"},
			{apply(false), "[] <nil>"},
		} {
			if !strings.HasPrefix(step.got, step.want) {
				t.Errorf("%s, want %s", step.got, step.want)
			}
		}
		one.Hold *= 2
		if got := apply(true, one); !strings.Contains(got, "addresses[0]: add address 192.0.2.10/24: the cluster") {
			t.Error(got)
		}
		if all, _ := w.nodes[0].List(); len(all) != 1 {
			t.Errorf("the cluster has %+v", all)
		}
	})
}

// TestLostAnswers loses the answer of the store to each order. It repeats the change only if that is needed.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		order := w.nodes[0]
		order.kill()
		order.Addresses = addresses.New(addresses.Config{Runner: order, Now: time.Now,
			Store: &forgetful{Client: w.Client(), lose: 2}, Note: func(api.Event) {}})
		go func() {
			for u := range w.Client().Updates(t.Context()) {
				order.Update(t.Context(), member.Self{Node: idOf(0)}, u)
			}
		}()
		synctest.Wait()
		spec := api.ClusterAddressSpec{Address: netip.PrefixFrom(at, 24), Candidates: []string{"host0"}}
		if r, err := order.AddAddress(t.Context(), spec); err != nil || !r.Changed {
			t.Errorf("add: %+v, %v", r, err)
		}
		if r, err := order.RemoveAddress(t.Context(), to("")); err != nil || !r.Changed {
			t.Errorf("remove: %+v, %v", r, err)
		}
		if _, exists := w.Snapshot().Get("addrs/192.0.2.10"); exists {
			t.Error("the record of a removed address is still there")
		}
	})
}

// forgetful is a store that loses the answer of every n-th transaction.
type forgetful struct {
	*kvtest.Client
	lose, count int
}

func (f *forgetful) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	result, err := f.Client.Commit(ctx, t)
	if f.count++; f.count%f.lose == 0 {
		return kv.Result{}, kv.ErrUnknown
	}
	return result, err
}

// TestWithoutMembership gives orders on a host that belongs to no cluster, and on one that was removed.
func TestWithoutMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		spec := api.ClusterAddressSpec{Address: netip.PrefixFrom(at, 24)}
		w.change(kv.Change{Key: "nodes/" + idOf(1)})
		synctest.Wait() // a member that leaves gives no more updates either
		r, err := w.nodes[1].AddAddress(t.Context(), spec)
		w.refused(api.Conflict, "was removed from the cluster", r, err)
		if err := w.nodes[0].Leave(); err != nil {
			t.Fatal(err)
		}
		r, err = w.nodes[0].AddAddress(t.Context(), spec)
		w.refused(api.NotFound, "no records of a cluster", r, err)
		_, err = w.nodes[0].Apply(t.Context(), []api.ClusterAddressSpec{spec}, true)
		w.refused(api.NotFound, "addresses[0]: virtual addresses belong to a cluster, and this host", r, err)
		_, err = w.nodes[0].List()
		w.refused(api.NotFound, "no records of a cluster", api.Result{}, err)
	})
}

// TestHostileRecords writes records that no node writes: they are problems, and can be removed.
func TestHostileRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		good := record.Address{Prefix: netip.PrefixFrom(at, 24), Hold: time.Second, Holder: idOf(7)}
		long := good
		long.Hold = time.Hour
		w.put("addrs/192.0.2.10", long)
		w.put("addrs/192.0.2.11", good)
		w.put("addrs/192.0.2.12", "text")
		w.put("addrs/x", good)
		synctest.Wait()
		problems := w.nodes[0].Update(t.Context(), member.Self{Node: idOf(0)}, kv.Update{Snapshot: w.Snapshot()})
		if all, err := w.nodes[0].List(); err != nil || len(all) > 0 || len(problems) != 4 ||
			!slices.IsSorted(problems) {
			t.Errorf("%q, %+v, %v", problems, all, err)
		}
		for _, a := range []string{"192.0.2.10", "192.0.2.11", "192.0.2.12"} {
			request := api.ClusterAddressRequest{Address: netip.MustParseAddr(a)}
			if _, err := w.nodes[0].RemoveAddress(t.Context(), request); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestClaimOfOwnAddress claims an address on the node that its record names, while no node answers for it: etcd is
// away, and so was the other node when it was asked for its promise. The order fails as long as that is so.
func TestClaimOfOwnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.add()
		holder := w.nodes[w.holder()]
		for _, n := range w.nodes {
			n.Client.Set(kvtest.Refused)
		}
		time.Sleep(5 * time.Second)
		if n := w.holder(); n >= 0 {
			t.Fatalf("without etcd and promises, node %d answers", n)
		}
		r, err := holder.ClaimAddress(t.Context(), forced())
		if err == nil || r.Changed || len(r.Notes) > 0 || !strings.Contains(err.Error(), "etcd does not answer") {
			t.Errorf("while no node answers, the order returns %+v, %v", r, err)
		}
		holder.Client.Set(kvtest.Works) // not for the other node, which would take the address as well
		if r, err = holder.ClaimAddress(t.Context(), forced()); err != nil || w.holder() < 0 {
			t.Errorf("with etcd, the order returns %+v, %v", r, err)
		}
	})
}
