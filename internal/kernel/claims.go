package kernel

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
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Claim says that another host answers for a virtual address of ours, on the
// link where that belongs.
type Claim struct {
	plan.VirtualAddress
	// By is its hardware address.
	By string
	// Also are the addresses by which this host knows it so far.
	Also []netip.Addr
}

// mostAsked bounds the addresses of one family that are asked for on one link,
// so that nobody takes the questions for a scan.
const mostAsked = 256

// Claims asks the neighbours on links who has virtual addresses that belong
// there, and returns who does beside this host. It takes as long as its patience
// if nobody answers, and changes nothing, here or there. A link that is not
// there, is down or has no neighbours is passed over; what could not be asked is
// an error beside the claims.
func (h *Host) Claims(ctx context.Context, of []plan.VirtualAddress, patience time.Duration) ([]Claim, error) {
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
			claims, err := h.claimsOn(ctx, on, addresses, patience)
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

// onLink is a family of addresses on a link.
type onLink struct {
	link string
	v4   bool
}

func (h *Host) claimsOn(ctx context.Context, on onLink, addresses []netip.Addr, patience time.Duration) ([]Claim, error) {
	var errs []error
	if n := len(addresses) - mostAsked; n > 0 {
		errs = append(errs, fmt.Errorf("%d addresses on %s are not asked for: more than %d at once are too many", n, on.link, mostAsked))
		addresses = addresses[:mostAsked]
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
	heard, err := asker.Ask(ctx, addresses, patience)
	errs = append(errs, err)
	var all []Claim
	for _, c := range heard {
		if !c.Probing {
			all = append(all, Claim{VirtualAddress: plan.VirtualAddress{Link: on.link, Addr: c.Address}, By: c.By.String()})
		}
	}
	return all, errors.Join(errs...)
}

// neighbour returns the addresses by which the host knows a hardware address on
// a link.
func (h *Host) neighbour(link, hardware string) ([]netip.Addr, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	on, err := handle.LinkByName(link)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", link, err)
	}
	list, err := retry(func() ([]netlink.Neigh, error) { return handle.NeighList(on.Attrs().Index, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list neighbours of %s: %w", link, err)
	}
	var all []netip.Addr
	for _, n := range list {
		if a, ok := address(n.IP); ok && n.HardwareAddr.String() == hardware {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, nil
}

// hardwareAddresses are those of the host's links: a host with two links to one
// network answers on both for what either has.
func (h *Host) hardwareAddresses() ([]string, error) {
	_, links, err := h.dump("")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, l := range links {
		all = append(all, l.Attrs().HardwareAddr.String())
	}
	return all, nil
}
