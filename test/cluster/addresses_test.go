package cluster_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
)

// virtual is a virtual address of a cluster, and a client on the same link. Each host answers
// a connection to port 80 with its name.
type virtual struct {
	*lan
	addr   netip.Addr
	client *netns.Namespace
}

func newVirtual(t *testing.T, hold time.Duration) *virtual {
	t.Helper()
	v := &virtual{lan: newLAN(t), addr: netip.MustParseAddr("192.0.2.10")}
	v.client = v.connected(77)
	v.joined()
	for _, h := range v.hosts {
		place.Serve(t, h.ns.Do, ":80", func(c net.Conn) { fmt.Fprint(c, h.name) })
	}
	v.change(func(r *record.Address) { r.Prefix, r.Hold = netip.PrefixFrom(v.addr, 24), hold })
	return v
}

// change changes the record of the address, as an administrator does.
func (v *virtual) change(do func(*record.Address)) {
	v.Helper()
	v.etcd.Members[0].Change("/fairlead/v1/default/addrs/"+v.addr.String(), func(value []byte) []byte {
		r, _ := record.Decode[record.Address](kv.Entry{Value: value}) // at first it does not exist
		do(&r)
		return record.Encode(r)
	})
}

// answered returns the name of the host that answers the client; empty if none does in time.
func (v *virtual) answered(limit time.Duration) string {
	conn, err := place.Dial(v.client.Do, "tcp", netip.AddrPortFrom(v.addr, 80).String(), limit)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	name, _ := io.ReadAll(conn) // it is empty if the connection ends
	return string(name)
}

// held waits until a host other than these answers, and returns it.
func (v *virtual) held(not ...*host) (holder *host) {
	v.Helper()
	v.until("a host answers", func() bool {
		name := v.answered(200 * time.Millisecond)
		for _, h := range v.hosts {
			if h.name == name {
				holder = h
			}
		}
		for _, n := range not {
			if n == holder {
				holder = nil
			}
		}
		return holder != nil
	})
	return holder
}

// left returns what a host has of the address.
func (v *virtual) left(h *host) string {
	return kerneltest.Run(v, h.ns, "ip", "-o", "address", "show", "to", v.addr.String())
}

// TestAddress lets a host hold a virtual address. When its daemon is killed, another host takes
// over. Nothing is left when the hosts have left the cluster.
func TestAddress(t *testing.T) {
	v := newVirtual(t, time.Second)
	one := v.held()
	one.Kill()
	two := v.held(one)
	one.Start()
	kerneltest.Run(t, v.between, "ip", "link", "set", "port"+strings.TrimPrefix(two.name, "host"), "down")
	three := v.held(two)
	if left := v.left(two); left != "" {
		t.Errorf("%s has no carrier, and keeps the address:\n%s", two.name, left)
	}
	three.Run("cluster", "leave")
	v.held(three)
	if left := v.left(three); left != "" {
		t.Errorf("%s has left the cluster, and keeps the address:\n%s", three.name, left)
	}
}
