package cluster_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/record"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/process"
)

// boxesPerHost are more than the addresses of a block.
const boxesPerHost = 4

// changeLimit is how long a request during a fault may take.
const changeLimit = time.Second

// movingAddress is in no block. All hosts request it.
var movingAddress = netip.MustParseAddr("10.9.200.1")

// crowd is hosts with faults, whose sandboxes come and go.
type crowd struct {
	*faulty
	boxes map[*host][]*netns.Namespace
	// moving has the sandbox of each host that requests movingAddress.
	moving map[*host]*netns.Namespace
}

// number returns the number in an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestNetworkFaults attaches and detaches sandboxes of three hosts while the hosts and etcd have random
// faults. One address moves between the hosts. Afterwards no two sandboxes have the same address, and all reach
// each other. The hosts' transactions for each block and for the address are linearizable. FAIRLEAD_FAULTS is the
// number of faults, FAIRLEAD_FAULTS_SEED repeats their order.
func TestNetworkFaults(t *testing.T) {
	seed := number(t, "FAIRLEAD_FAULTS_SEED", uint64(time.Now().UnixNano()))
	f := newFaulty(t, 1, seed)
	c := &crowd{f, map[*host][]*netns.Namespace{}, map[*host]*netns.Namespace{}}
	f.hosts[0].Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16",
		"--block-size", "30")
	for _, h := range f.hosts {
		f.until(h.name+" has the network", h.has)
		for range boxesPerHost {
			ns := kerneltest.Netns(t)
			place.Serve(t, ns.Do, ":80", place.Hangup)
			c.boxes[h] = append(c.boxes[h], ns)
		}
		c.moving[h] = kerneltest.Netns(t)
	}
	c.move(place.Timeout)
	for count := int(number(t, "FAIRLEAD_FAULTS", 3)); f.total() < count; {
		ends := []func(){f.some("host", hostFaults), f.some("etcd", etcdFaults)}
		c.change()
		f.pause(2)
		c.change()
		for _, end := range ends {
			end()
			c.change()
		}
		f.held()
	}
	f.close()
	f.report(seed)
	c.judge()
	f.linearizable(record.Blocks, record.Moves)
}

// change attaches or detaches one sandbox of each host, and moves the address. Hosts with a fault may not do it,
// or later.
func (c *crowd) change() {
	for _, h := range c.hosts {
		ctx, cancel := context.WithTimeout(c.lan.Context(), changeLimit)
		ns := c.boxes[h][c.r.IntN(boxesPerHost)]
		if c.r.IntN(3) > 0 {
			_ = attach(ctx, h, ns)
		} else {
			_ = detach(ctx, h, ns)
		}
		cancel()
	}
	c.move(changeLimit)
}

// move detaches the sandboxes with the address that moves, and lets two hosts request it at the same time.
func (c *crowd) move(limit time.Duration) {
	ctx, cancel := context.WithTimeout(c.lan.Context(), limit)
	defer cancel()
	for _, h := range c.hosts {
		_ = detach(ctx, h, c.moving[h])
	}
	var all sync.WaitGroup
	for _, i := range c.r.Perm(len(c.hosts))[:2] {
		h := c.hosts[i]
		all.Go(func() { _ = attach(ctx, h, c.moving[h], movingAddress) })
	}
	all.Wait()
}

// attach attaches a sandbox, unless it is attached. Without addresses, it gets one of the host's blocks.
func attach(ctx context.Context, h *host, ns *netns.Namespace, addresses ...netip.Addr) error {
	_, err := admin.Attach.Do(ctx, h.Client, api.AttachRequest{Endpoint: model.Endpoint{Network: "shop",
		Sandbox: process.Seen(ns.Path()), Addresses: addresses}})
	return err
}

func detach(ctx context.Context, h *host, ns *netns.Namespace) error {
	_, err := admin.Detach.Do(ctx, h.Client, api.DetachRequest{Network: "shop", Sandbox: process.Seen(ns.Path())})
	return err
}

// judge attaches all sandboxes when there is no fault, and checks their addresses.
func (c *crowd) judge() {
	var all []box
	owners := map[netip.Addr]string{}
	for _, h := range c.hosts {
		c.until(h.name+" reaches etcd", func() bool { s := h.status(); return s.Etcd.Connected && s.Etcd.Frozen == "" })
		for _, ns := range c.boxes[h] {
			var b box
			c.until("a sandbox of "+h.name+" is attached", func() bool {
				_ = attach(c.lan.Context(), h, ns) // its block may have to be claimed first
				b = c.attached(h, ns)
				return b.addr.IsValid()
			})
			if other := owners[b.addr]; other != "" {
				c.lan.Errorf("%s and %s have a sandbox with the address %s", other, h.name, b.addr)
			}
			owners[b.addr] = h.name
			all = append(all, b)
		}
		if b := c.attached(h, c.moving[h]); b.addr.IsValid() {
			if other := owners[b.addr]; other != "" {
				c.lan.Errorf("%s and %s have the address %s", other, h.name, b.addr)
			}
			owners[b.addr] = h.name
		}
	}
	for _, from := range all {
		for _, to := range all {
			c.until(from.addr.String()+" reaches "+to.addr.String(), func() bool {
				conn, err := place.Dial(from.Do, "tcp", net.JoinHostPort(to.addr.String(), "80"), time.Second)
				if err == nil {
					conn.Close()
				}
				return err == nil
			})
		}
	}
	c.lan.Logf("%d sandboxes of %d hosts reach each other", len(all), len(c.hosts))
}

// attached returns a sandbox that is attached and runs; its address is not valid if it does not.
func (c *crowd) attached(h *host, ns *netns.Namespace) box {
	views, err := h.Client.Attachments(c.lan.Context())
	if err != nil {
		return box{}
	}
	for _, v := range views {
		if v.Sandbox == process.Seen(ns.Path()) && v.Status == api.Up && len(v.Endpoint.Addresses) == 1 {
			return box{Namespace: ns, name: v.Name, addr: v.Endpoint.Addresses[0]}
		}
	}
	return box{}
}
