package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/kernel/neighbour"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// Claim is another host that answers for one of this host's virtual addresses, on
// the address's link.
type Claim struct {
	plan.VirtualAddress
	// By is the other host's hardware address.
	By string
	// Also are the other host's IP addresses according to this host's neighbour
	// table.
	Also []netip.Addr
}

// maxAsked limits how many addresses per family and link are queried, so that the
// queries are not mistaken for a scan.
const maxAsked = 256

// Claims sends neighbour requests for virtual addresses on their links and returns
// the other hosts that answer. It waits for answers until the timeout and changes
// no state, here or on the neighbours. Links that are missing, down or without
// neighbours are skipped. If some addresses could not be queried, Claims returns an
// error along with the other claims.
func (h *Reader) Claims(ctx context.Context, of []plan.VirtualAddress, timeout time.Duration) ([]Claim, error) {
	asked := map[onLink][]netip.Addr{}
	for _, v := range of {
		on := onLink{v.Link, v.Addr.Is4()}
		if !slices.Contains(asked[on], v.Addr) {
			asked[on] = append(asked[on], v.Addr)
		}
	}
	var mu sync.Mutex
	var all []Claim
	var errs []error
	var wg sync.WaitGroup
	for on, addresses := range asked {
		wg.Go(func() {
			claims, err := h.claimsOn(ctx, on, addresses, timeout)
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, claims...), append(errs, err)
		})
	}
	wg.Wait()
	own, err := h.hardwareAddresses()
	all = slices.DeleteFunc(all, func(c Claim) bool { return slices.Contains(own, c.By) })
	errs = append(errs, err)
	for i, c := range all {
		all[i].Also, err = h.neighbour(c.Link, c.By)
		errs = append(errs, err)
	}
	slices.SortFunc(all, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), a.Addr.Compare(b.Addr), cmp.Compare(a.By, b.By))
	})
	return all, errors.Join(errs...)
}

// onLink is an address family on a link.
type onLink struct {
	link string
	v4   bool
}

func (h *Reader) claimsOn(ctx context.Context, on onLink, addresses []netip.Addr,
	timeout time.Duration) ([]Claim, error) {
	var errs []error
	if n := len(addresses) - maxAsked; n > 0 {
		errs = append(errs, fmt.Errorf("query neighbours on %s: %d addresses are left out: "+
			"at most %d are queried at once", on.link, n, maxAsked))
		addresses = addresses[:maxAsked]
	}
	var asker *neighbour.Asker
	err := h.ns.Do(func() error {
		link, err := net.InterfaceByName(on.link)
		if err != nil || link.Flags&net.FlagUp == 0 || link.Flags&net.FlagLoopback != 0 || len(link.HardwareAddr) != 6 {
			return nil
		}
		asker, err = neighbour.Open(link, on.v4)
		return err
	})
	if err != nil || asker == nil {
		return nil, errors.Join(append(errs, err)...)
	}
	defer asker.Close()
	heard, err := asker.Ask(ctx, addresses, timeout)
	errs = append(errs, err)
	var all []Claim
	for _, c := range heard {
		if !c.Probing {
			all = append(all, Claim{VirtualAddress: plan.VirtualAddress{Link: on.link, Addr: c.Address},
				By: c.By.String()})
		}
	}
	return all, errors.Join(errs...)
}

// neighbour returns the IP addresses that the host's neighbour table lists for a
// hardware address on a link.
func (h *Reader) neighbour(link, hardware string) ([]netip.Addr, error) {
	on, err := h.rtnl.LinkByName("", link)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", link, err)
	}
	list, err := h.rtnl.Neighbours(on.Attrs().Index, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", link, err)
	}
	var all []netip.Addr
	for _, n := range list {
		if a := nlutil.Addr(n.IP); a.IsValid() && n.HardwareAddr.String() == hardware {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, nil
}

// hardwareAddresses returns the hardware addresses of the host's links. A host with
// two links to one network answers on both of them for the addresses of either.
func (h *Reader) hardwareAddresses() ([]string, error) {
	links, err := h.rtnl.Dump("")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, l := range links {
		all = append(all, l.Attrs().HardwareAddr.String())
	}
	return all, nil
}
