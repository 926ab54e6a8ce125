package block_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

var prefix = netip.MustParsePrefix

// cluster is a store with nodes n0, n1 … and a network.
type cluster struct {
	*testing.T
	*kvtest.Store
	client *kvtest.Client
}

func newCluster(t *testing.T, nodes int) *cluster {
	store := kvtest.New()
	c := &cluster{t, store, store.Client()}
	for i := range nodes {
		id := fmt.Sprint("n", i)
		c.put(record.Key(record.Nodes, id), record.Encode(record.Node{ID: id}))
	}
	return c
}

func (c *cluster) put(key string, value []byte) {
	c.Helper()
	if _, err := c.client.Commit(c.Context(), kv.Txn{Then: []kv.Change{{Key: key, Value: value}}}); err != nil {
		c.Fatal(err)
	}
}

// network creates an overlay with this subnet and block size.
func (c *cluster) network(name, subnet string, bits int) {
	c.Helper()
	if err := block.Create(c.Context(), c.client, c.Snapshot(), overlay(name, subnet), []int{bits}); err != nil {
		c.Fatal(err)
	}
}

func overlay(name, subnet string) model.Network {
	return model.Network{Name: name, Driver: model.DriverVXLAN, Subnets: []model.Subnet{{Prefix: prefix(subnet)}}}
}

// TestClaimsAreDisjoint lets all nodes claim all blocks at the same time, from the same snapshot.
func TestClaimsAreDisjoint(t *testing.T) {
	const nodes, each = 32, 2
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nodes)
		c.network("net", "10.9.0.0/22", 30)
		old := c.Snapshot()
		var mu sync.Mutex
		holders := map[netip.Prefix]string{}
		var all sync.WaitGroup
		for i := range nodes {
			all.Go(func() {
				for range each {
					node := fmt.Sprint("n", i)
					p, err := block.Claim(t.Context(), c.Client(), old, "net", node, 0)
					mu.Lock()
					if other, taken := holders[p]; err != nil || taken {
						t.Errorf("%s gets %s of %q: %v", node, p, other, err)
					}
					holders[p] = node
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for i := range nodes {
			node := fmt.Sprint("n", i)
			own := block.Own(c.Snapshot(), "net", node)
			if len(own) != each || holders[own[0]] != node || holders[own[1]] != node {
				t.Errorf("the store has blocks %v of %s", own, node)
			}
		}
	})
}

// TestFull claims one block more than a subnet has.
func TestFull(t *testing.T) {
	c := newCluster(t, 5)
	c.network("net", "10.9.0.0/28", 30)
	old := c.Snapshot()
	for i := range 4 {
		if _, err := block.Claim(t.Context(), c.client, old, "net", fmt.Sprint("n", i), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := block.Claim(t.Context(), c.client, old, "net", "n4", 0); !errors.Is(err, block.ErrFull) {
		t.Errorf("the error is %v, want %v", err, block.ErrFull)
	}
}

// TestLostAnswer claims a block whose transaction is committed, but not answered.
func TestLostAnswer(t *testing.T) {
	for _, fault := range []kvtest.Fault{kvtest.AnswerLost, kvtest.RequestLost} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1)
			c.network("net", "10.9.0.0/24", 26)
			node := c.Client()
			node.Set(fault)
			done := make(chan netip.Prefix)
			go func() {
				p, err := block.Claim(t.Context(), node, c.Snapshot(), "net", "n0", 0)
				if err != nil {
					t.Error(err)
				}
				done <- p
			}()
			synctest.Wait() // the first attempt waits for its answer
			node.Set(kvtest.Works)
			p := <-done
			if own := block.Own(c.Snapshot(), "net", "n0"); len(own) != 1 || own[0] != p {
				t.Errorf("fault %v: the claim returns %s, and the store has %v", fault, p, own)
			}
		})
	}
}

// TestLostAnswerStaysUnknown loses the answer to a claim or a removal, and then etcd does not answer any
// more. The error must not say that nothing was committed.
func TestLostAnswerStaysUnknown(t *testing.T) {
	for name, request := range map[string]func(*cluster, kv.Committer) error{
		"claim": func(c *cluster, node kv.Committer) error {
			_, err := block.Claim(c.Context(), node, c.Snapshot(), "net", "n0", 0)
			return err
		},
		"removal": func(c *cluster, node kv.Committer) error {
			return block.Remove(c.Context(), node, c.Snapshot(), "net")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1)
			c.network("net", "10.9.0.0/24", 26)
			node, ended := c.Client(), make(chan error)
			node.Set(kvtest.AnswerLost)
			go func() { ended <- request(c, node) }()
			synctest.Wait() // the first attempt waits for its answer
			node.Set(kvtest.Refused)
			if err := <-ended; !errors.Is(err, kv.ErrUnknown) || errors.Is(err, kv.ErrUnavailable) {
				t.Errorf("%s: the error is %v, want %v", name, err, kv.ErrUnknown)
			}
		})
	}
}

// TestClaimNeedsNode claims for nodes that must not lease addresses, also if the snapshot is older
// than that.
func TestClaimNeedsNode(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*cluster)
		want   error
	}{
		"removed": {func(c *cluster) { c.put(record.Key(record.Nodes, "n0"), nil) }, block.ErrGone},
		"drained": {func(c *cluster) {
			c.put(record.Key(record.Nodes, "n0"), record.Encode(record.Node{ID: "n0", Drained: true}))
		}, block.ErrDrained},
		"no network": {func(c *cluster) {
			if err := block.Remove(c.Context(), c.client, c.Snapshot(), "net"); err != nil {
				c.Fatal(err)
			}
		}, block.ErrGone},
		"no etcd": {func(c *cluster) { c.client.Set(kvtest.Refused) }, kv.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			c.network("net", "10.9.0.0/24", 26)
			old := c.Snapshot()
			test.change(c)
			for _, s := range []kv.Snapshot{old, c.Snapshot()} {
				if p, err := block.Claim(t.Context(), c.client, s, "net", "n0", 0); !errors.Is(err, test.want) {
					t.Errorf("the claim returns %s, %v; want %v", p, err, test.want)
				}
			}
		})
	}
}

// TestFreedBlockIsAnother removes a network twice with the same snapshot. Meanwhile a new network with
// its name gets the same block.
func TestFreedBlockIsAnother(t *testing.T) {
	c := newCluster(t, 2)
	claim := func(node string) netip.Prefix {
		t.Helper()
		c.network("net", "10.9.0.0/29", 29)
		p, err := block.Claim(t.Context(), c.client, c.Snapshot(), "net", node, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := claim("n0")
	old := c.Snapshot()
	remove := func() {
		t.Helper()
		if err := block.Remove(t.Context(), c.client, old, "net"); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	if q := claim("n1"); q != p {
		t.Fatalf("the only block is %s, and n1 gets %s", p, q)
	}
	remove()
	if own := block.Own(c.Snapshot(), "net", "n1"); len(own) != 1 {
		t.Errorf("the block of n1 was freed with the earlier network: it has %v", own)
	}
}

// TestCreate creates networks on many nodes at the same time: each name and number once.
func TestCreate(t *testing.T) {
	c := newCluster(t, 0)
	old := c.Snapshot()
	var all sync.WaitGroup
	var mu sync.Mutex
	created := 0
	for i := range 32 {
		all.Go(func() {
			n := overlay(fmt.Sprint("net", i%16), fmt.Sprintf("10.%d.0.0/16", i))
			n.Overlay.VNI = uint32(i / 16 * (i%16 + 1)) // half of them are numbered
			err := block.Create(context.Background(), c.Client(), old, n, nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				created++
			case !errors.Is(err, block.ErrExists):
				t.Error(err)
			}
		})
	}
	all.Wait()
	numbers := map[uint32]bool{}
	for e := range c.Snapshot().Under(record.Networks) {
		n, err := record.Decode[record.Network](e)
		vni := n.Spec.Overlay.VNI
		owner, known, readErr := record.Get[string](c.Snapshot(), record.Key(record.VNIs, fmt.Sprint(vni)))
		if err != nil || readErr != nil || !known || owner != n.Spec.Name || numbers[vni] || n.BlockBits[0] != 26 {
			t.Errorf("network %s has number %d, which belongs to %q, and blocks /%v: %v", n.Spec.Name, vni, owner,
				n.BlockBits, errors.Join(err, readErr))
		}
		numbers[vni] = true
	}
	if created != 16 || len(numbers) != 16 {
		t.Errorf("%d networks were created, and the store has %d", created, len(numbers))
	}
}

func TestRemove(t *testing.T) {
	c := newCluster(t, 1)
	c.network("net", "10.9.0.0/16", 26)
	if _, err := block.Claim(t.Context(), c.client, c.Snapshot(), "net", "n0", 0); err != nil {
		t.Fatal(err)
	}
	if err := block.Remove(t.Context(), c.client, c.Snapshot(), "net"); err != nil {
		t.Fatal(err)
	}
	for e := range c.Snapshot().Under("") {
		if e.Key != record.Key(record.Nodes, "n0") {
			t.Errorf("%s stays", e.Key)
		}
	}
	if err := block.Remove(t.Context(), c.client, c.Snapshot(), "net"); !errors.Is(err, block.ErrGone) {
		t.Errorf("a network that does not exist: %v", err)
	}
}

// TestEncryptedPorts creates two encrypted networks: on each host, each needs a UDP port of its own.
func TestEncryptedPorts(t *testing.T) {
	c := newCluster(t, 0)
	for i, name := range []string{"first", "second"} {
		n := overlay(name, fmt.Sprintf("10.%d.0.0/16", i))
		n.Overlay.Encrypt = true
		if err := block.Create(t.Context(), c.client, c.Snapshot(), n, nil); err != nil {
			t.Fatal(err)
		}
		r, _, err := record.Get[record.Network](c.Snapshot(), record.Key(record.Networks, name))
		if want := uint16(model.PortWireGuard + i); err != nil || r.Spec.Overlay.WirePort() != want {
			t.Errorf("network %s has the port %d, want %d: %v", name, r.Spec.Overlay.WirePort(), want, err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	c := newCluster(t, 0)
	c.network("net", "10.9.0.0/16", 26)
	c.put(record.Key(record.Addresses, "10.7.0.9"), record.Encode(record.Address{Prefix: prefix("10.7.0.9/24"),
		Hold: record.MinHold}))
	for name, test := range map[string]struct {
		change func(*model.Network)
		bits   int
		want   error
	}{
		"a name twice":   {func(n *model.Network) { n.Name = "net" }, 0, block.ErrExists},
		"a subnet twice": {func(n *model.Network) { n.Subnets[0].Prefix = prefix("10.9.1.0/24") }, 0, block.ErrExists},
		"a virtual one":  {func(n *model.Network) { n.Subnets[0].Prefix = prefix("10.7.0.0/16") }, 0, block.ErrExists},
		"a bridge":       {func(n *model.Network) { n.Driver = model.DriverBridge }, 0, block.ErrInvalid},
		"IPv6 overlay":   {func(n *model.Network) { n.Subnets[0].Prefix = prefix("fd00:9::/64") }, 0, block.ErrInvalid},
		"no subnet":      {func(n *model.Network) { n.Subnets = nil }, 0, block.ErrInvalid},
		"a wrong name":   {func(n *model.Network) { n.Name = "a/b" }, 0, block.ErrInvalid},
		"peers":          {func(n *model.Network) { n.Overlay.Peers = make([]model.Peer, 1) }, 0, block.ErrInvalid},
		"a range":        {func(n *model.Network) { n.Subnets[0].Range = prefix("10.8.0.0/24") }, 0, block.ErrInvalid},
		"a large block":  {func(*model.Network) {}, 17, block.ErrInvalid},
		"a small block":  {func(*model.Network) {}, 31, block.ErrInvalid},
		"a shared key":   {func(n *model.Network) { n.Overlay.KeyFile = "/net.key" }, 0, block.ErrInvalid},
		"plain routes": {func(n *model.Network) { n.Driver, n.Overlay.Encrypt = model.DriverRouted, true }, 0,
			block.ErrInvalid},
		"a used number": {func(n *model.Network) { n.Overlay.VNI = numberOf(c, "net") }, 0, block.ErrExists},
		"nothing":       {func(*model.Network) {}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := overlay("other", "10.8.0.0/16")
			test.change(&n)
			err := block.Create(t.Context(), c.client, c.Snapshot(), n, []int{test.bits})
			if !errors.Is(err, test.want) {
				t.Errorf("the error is %v, want %v", err, test.want)
			}
			if test.want == nil {
				return
			}
			if _, known := c.Snapshot().Get(record.Key(record.Networks, "other")); known {
				t.Error("the network exists")
			}
		})
		_ = block.Remove(t.Context(), c.client, c.Snapshot(), "other") // it exists after one of the tests
	}
}

// numberOf returns the number of an overlay.
func numberOf(c *cluster, name string) uint32 {
	n, _, err := record.Get[record.Network](c.Snapshot(), record.Key(record.Networks, name))
	if err != nil {
		c.Fatal(err)
	}
	return n.Spec.Overlay.VNI
}

func TestDefaultBits(t *testing.T) {
	for subnet, want := range map[string]int{"10.9.0.0/16": 26, "10.9.0.0/24": 28, "10.9.0.0/28": 30,
		"fd00:9::/64": 122} {
		bits := block.DefaultBits(prefix(subnet))
		if err := record.ValidBits(prefix(subnet), bits); bits != want || err != nil {
			t.Errorf("blocks of %s have /%d, want /%d: %v", subnet, bits, want, err)
		}
	}
}

// TestRemoveOfAnotherNode removes a network that the snapshot does not have yet.
func TestRemoveOfAnotherNode(t *testing.T) {
	c := newCluster(t, 1)
	old := c.Snapshot()
	c.network("net", "10.9.0.0/28", 30)
	if err := block.Remove(t.Context(), c.client, old, "net"); err != nil {
		t.Error(err)
	}
	if _, left := c.Snapshot().Get("nets/net"); left {
		t.Error("the network is still there")
	}
	if err := block.Remove(t.Context(), c.client, old, "net"); !errors.Is(err, block.ErrGone) {
		t.Errorf("the error is %v, want %v", err, block.ErrGone)
	}
}
