package docker

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// The IPAM driver leases ranges and addresses.
//
// Theory of operation. A pool's id is its range, so that it says everything
// even when nothing else is known of it. Docker asks for the pools, gateways
// and auxiliary addresses of its networks again whenever it starts
// (RequiresRequestReplay): its first call then, Plugin.Activate, makes what is
// leased unclaimed, and whoever asks for it first gets it. What is claimed is
// refused to anybody else. So nothing is given away twice, and nothing is lost
// when either side is killed at the wrong moment.
//
// Addresses that were asked for, gateways among them, outlive a reboot, because
// Docker may start before us, and then asks for nothing again. Those that we
// chose end with the boot, as containers do.

// space is the one address space that there is.
const space = "fairlead"

type ipamCapabilities struct{ RequiresMACAddress, RequiresRequestReplay bool }

type addressSpaces struct{ LocalDefaultAddressSpace, GlobalDefaultAddressSpace string }

type poolRequest struct {
	// Pool and SubPool are ranges, empty where Docker leaves them to us.
	Pool, SubPool string
	V6            bool
	// PoolID is of calls to release it.
	PoolID string
}

type poolResponse struct{ PoolID, Pool string }

type addressRequest struct {
	PoolID, Address string
	Options         map[string]string
}

type addressResponse struct{ Address string }

// ipamMethods are the calls of the IPAM driver.
func (d *Driver) ipamMethods() map[string]method {
	return map[string]method{
		"IpamDriver.GetCapabilities":         same(ipamCapabilities{RequiresRequestReplay: true}),
		"IpamDriver.GetDefaultAddressSpaces": same(addressSpaces{space, space + "-global"}),
		"IpamDriver.RequestPool":             call(d.requestPool),
		"IpamDriver.ReleasePool":             call(d.releasePool),
		"IpamDriver.RequestAddress":          call(d.requestAddress),
		"IpamDriver.ReleaseAddress":          call(d.releaseAddress),
	}
}

// activate is Docker's first call after it has started. It drops what earlier
// engines have left of containers that have ended.
func (d *Driver) activate(context.Context, []byte) (any, error) {
	d.cfg.Daemon.RemoveDead()
	exists, used := map[string]bool{}, map[netip.Addr]bool{}
	for _, a := range d.cfg.Daemon.Attachments() {
		exists[ownKey(a.Name)] = true
		for _, addr := range a.Addresses {
			used[addr] = true
		}
	}
	err := d.leasing(func(l *leases) error {
		for key := range d.cfg.Passing.All() {
			if strings.HasPrefix(key, ownKey("")) && !exists[key] {
				l.passing[key] = nil
			}
		}
		l.unclaim()
		l.dropUnused(used)
		return nil
	})
	return activation{[]string{"NetworkDriver", "IpamDriver"}}, err
}

func (d *Driver) requestPool(_ context.Context, r poolRequest) (any, error) {
	var answer poolResponse
	err := d.leasing(func(l *leases) error {
		p, err := readPool(r.Pool, r.SubPool)
		if err == nil && !p.Prefix.IsValid() {
			p, err = d.freePool(l, r.V6)
		}
		if err != nil {
			return err
		}
		answer = poolResponse{p.id(), p.Prefix.String()}
		return l.claimPool(p)
	})
	return answer, err
}

// freePool chooses a range that neither the host nor a network has.
func (d *Driver) freePool(l *leases, v6 bool) (pool, error) {
	busy, err := d.cfg.Host.Ranges()
	if err != nil {
		return pool{}, err
	}
	for _, n := range d.cfg.Daemon.Networks() {
		for _, s := range n.Subnets {
			busy = append(busy, s.Prefix)
		}
	}
	return l.free(v6, busy)
}

func (d *Driver) releasePool(_ context.Context, r poolRequest) (any, error) {
	return nothing{}, d.leasing(func(l *leases) error {
		l.releasePool(r.PoolID)
		return nil
	})
}

func (d *Driver) requestAddress(_ context.Context, r addressRequest) (any, error) {
	var answer addressResponse
	err := d.leasing(func(l *leases) error {
		p, err := l.pool(r.PoolID)
		if err != nil {
			return err
		}
		asked, err := address(r.Address)
		if err != nil {
			return fmt.Errorf("address %.64q: want an address", r.Address)
		}
		gateway := r.Options["RequestAddressType"] == keyGateway
		given, err := l.claim(p, asked, gateway)
		answer.Address = netip.PrefixFrom(given, p.Prefix.Bits()).String()
		return err
	})
	return answer, err
}

func (d *Driver) releaseAddress(_ context.Context, r addressRequest) (any, error) {
	return nothing{}, d.leasing(func(l *leases) error {
		if asked, err := address(r.Address); err == nil {
			l.release(asked)
		}
		return nil
	})
}

// leasing changes the leases, one caller at a time.
func (d *Driver) leasing(change func(*leases) error) error {
	d.choosing.Lock()
	defer d.choosing.Unlock()
	l, err := readLeases(d.cfg.Lasting.All(), d.cfg.Passing.All())
	if err != nil {
		return err
	}
	if err := change(l); err != nil {
		return err
	}
	if err := d.cfg.Lasting.Put(l.lasting); err != nil {
		return err
	}
	return d.cfg.Passing.Put(l.passing)
}

// readPool reads a range, and the part of it to lease from; nothing is none.
func readPool(whole, part string) (p pool, err error) {
	if whole == "" {
		if part != "" {
			return p, fmt.Errorf("range %.64q: want the subnet that it is a part of, too", part)
		}
		return p, nil
	}
	if p.Prefix, err = netip.ParsePrefix(whole); err != nil {
		return p, fmt.Errorf("pool %.64q: want an address range", whole)
	}
	p.Prefix = p.Prefix.Masked()
	p.Range = p.Prefix
	if part != "" {
		if p.Range, err = netip.ParsePrefix(part); err != nil {
			return p, fmt.Errorf("range %.64q: want an address range", part)
		}
		p.Range = p.Range.Masked()
	}
	if p.Range.Bits() < p.Prefix.Bits() || !p.Prefix.Contains(p.Range.Addr()) {
		return p, fmt.Errorf("range %s: want a part of %s", p.Range, p.Prefix)
	}
	return p, nil
}

// readPoolID reads what id has written.
func readPoolID(id string) (pool, error) {
	whole, part, _ := strings.Cut(id, " ")
	if whole == "" {
		return pool{}, fmt.Errorf("pool %.64q: there is none of that id", id)
	}
	return readPool(whole, part)
}
