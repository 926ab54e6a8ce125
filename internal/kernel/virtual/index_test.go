package virtual

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// slowly returns what LinkOf must return, by a look at each link.
func slowly(links map[int]*link, p netip.Prefix, name string) (index int, own bool) {
	var found *link
	for _, l := range links {
		for _, a := range l.addresses {
			if a.Addr() == p.Addr() {
				return 0, true
			}
			if name == "" && (a.Masked() == p.Masked() || p.Contains(a.Addr()) && a.Contains(p.Addr())) &&
				(found == nil || l.better(found)) {
				found = l
			}
		}
		if name != "" && l.Name == name && (found == nil || l.better(found)) {
			found = l
		}
	}
	if found == nil || !found.up || !found.carrier {
		return -1, false
	}
	return found.Index, false
}

// TestIndexFindsWhatALookFinds compares LinkOf with a look at each link, for random links and addresses.
func TestIndexFindsWhatALookFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr {
		if random.IntN(3) == 0 {
			return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 13: byte(random.IntN(2)), 14: byte(random.IntN(3)),
				15: byte(random.IntN(9))})
		}
		return netip.AddrFrom4([4]byte{10, byte(random.IntN(2)), byte(random.IntN(3)), byte(random.IntN(9))})
	}
	prefix := func() netip.Prefix {
		a := address()
		return netip.PrefixFrom(a, a.BitLen()-[]int{0, 1, 4, 8, 16, 17}[random.IntN(6)])
	}
	found := map[string]int{}
	for range 300 {
		h := &Handle{links: map[int]*link{}}
		for i := range 1 + random.IntN(6) {
			l := &link{Link: Link{Index: i + 1, Name: fmt.Sprint("eth", i)}, ether: true, up: random.IntN(4) > 0,
				carrier: random.IntN(4) > 0}
			for range random.IntN(3) {
				l.addresses = append(l.addresses, prefix())
			}
			h.links[l.Index] = l
		}
		for range 20 {
			p, name := prefix(), []string{"", "", "eth1"}[random.IntN(3)]
			want, wantOwn := slowly(h.links, p, name)
			is, err := h.LinkOf(p, name)
			if own := new(OwnError); errors.As(err, &own) != wantOwn || !wantOwn && (err == nil) != (want >= 0) ||
				err == nil && is.Index != want {
				t.Fatalf("%s %q: %+v, %v; want link %d, own %t", p, name, is, err, want, wantOwn)
			}
			switch {
			case wantOwn:
				found["own"]++
			case err == nil:
				found["found"]++
			default:
				found["none"]++
			}
		}
	}
	for _, kind := range []string{"own", "found", "none"} {
		if found[kind] < 100 {
			t.Errorf("the random links cover the cases %v", found)
		}
	}
}

// TestLinksAreIndexedOnce: a thousand links are looked at once for hundreds of addresses, and again after a change that
// matters only. The lifetime of a virtual address is set each second, which does not matter.
func TestLinksAreIndexedOnce(t *testing.T) {
	h := manyLinks(1000)
	built := map[*index]bool{}
	find := func() {
		for i := range 500 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(2 + i/250), byte(1 + i%250)}), 16)
			if on, err := h.LinkOf(p, ""); err != nil || on.Index != 1 {
				t.Fatalf("%s: %+v, %v", p, on, err)
			}
			built[h.index] = true
		}
	}
	find()
	ip, err := netlink.ParseIPNet("192.0.2.1/32")
	if err != nil {
		t.Fatal(err)
	}
	if h.noteAddress(netlink.AddrUpdate{LinkIndex: 1, LinkAddress: *ip, NewAddr: true, Flags: unix.IFA_F_DEPRECATED}) {
		t.Error("a virtual address of the link matters")
	}
	find()
	if len(built) != 1 {
		t.Errorf("the links were indexed %d times, want once", len(built))
	}
	if ip, err = netlink.ParseIPNet("198.51.100.1/24"); err != nil {
		t.Fatal(err)
	}
	if !h.noteAddress(netlink.AddrUpdate{LinkIndex: 1, LinkAddress: *ip, NewAddr: true, Flags: unix.IFA_F_PERMANENT}) {
		t.Error("an address of a link does not matter")
	}
	find()
	if on, err := h.LinkOf(netip.MustParsePrefix("198.51.100.9/24"), ""); err != nil || on.Index != 1 {
		t.Errorf("the new subnet: %+v, %v", on, err)
	}
	if len(built) != 2 {
		t.Errorf("the links were indexed %d times, want twice", len(built))
	}
}

// manyLinks returns a Handle with links, of which the first has 192.0.1.1/16.
func manyLinks(n int) *Handle {
	h := &Handle{links: map[int]*link{}}
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), 24)
		h.links[i+1] = &link{Link: Link{Index: i + 1, Name: fmt.Sprint("veth", i)}, ether: true, up: true,
			carrier: true, addresses: []netip.Prefix{p}}
	}
	h.links[1].addresses = []netip.Prefix{netip.MustParsePrefix("192.0.1.1/16")}
	return h
}

// BenchmarkLinkOf finds the links of 500 addresses among 1,000.
func BenchmarkLinkOf(b *testing.B) {
	h := manyLinks(1000)
	for b.Loop() {
		for i := range 500 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(2 + i/250), byte(1 + i%250)}), 16)
			if _, err := h.LinkOf(p, ""); err != nil {
				b.Fatal(err)
			}
		}
	}
}
