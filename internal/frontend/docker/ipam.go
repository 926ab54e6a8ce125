package docker

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// The IPAM driver leases ranges and addresses.
//
// Theory of operation. A pool's ID is its range, so a pool is known even if
// nothing is stored about it. Docker requests the pools, gateways and auxiliary
// addresses of its networks again whenever it starts (RequiresRequestReplay). Its
// first call is Plugin.Activate, which marks all leases as unclaimed. The first
// request for an unclaimed lease gets it; a request for a claimed lease is refused.
// Thus nothing is leased twice, and nothing is lost if either side is killed.
//
// Requested addresses, including gateways, survive a reboot, because Docker can
// start before the daemon and does not repeat its requests then. Addresses that
// this driver chose end with the boot, as containers do.

// space is the only local address space.
const space = "fairlead"

type ipamCapabilities struct{ RequiresMACAddress, RequiresRequestReplay bool }

type addressSpaces struct{ LocalDefaultAddressSpace, GlobalDefaultAddressSpace string }

type poolRequest struct {
	// Pool and SubPool are ranges. If Pool is empty, the driver chooses it.
	Pool, SubPool string
	V6            bool
	// Options are those of `docker network create --ipam-opt`.
	Options map[string]string
	// PoolID is set in calls of ReleasePool.
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

// activate is Docker's first call after its start. It removes what earlier engines
// left behind from containers that have ended.
func (d *Driver) activate(context.Context, []byte) (any, error) {
	d.cfg.Daemon.RemoveDead()
	exists, used := map[string]bool{}, map[netip.Addr]bool{}
	for _, a := range d.cfg.Daemon.Attachments() {
		exists[endpointSettingsKey(a.Name)] = true
		for _, addr := range a.Addresses {
			used[addr] = true
		}
	}
	err := d.leasing(func(l *leases) error {
		for key := range d.cfg.Passing.All() {
			if strings.HasPrefix(key, endpointSettingsKey("")) && !exists[key] {
				l.passing[key] = nil
			}
		}
		l.unclaim()
		l.dropUnused(used)
		return nil
	})
	return activation{[]string{"NetworkDriver", "IpamDriver"}}, err
}

func (d *Driver) requestPool(ctx context.Context, r poolRequest) (any, error) {
	cluster, err := clusterOption(r.Options)
	if err != nil {
		return nil, err
	}
	var p pool
	if cluster != "" {
		p, err = d.clusterPool(ctx, cluster, r)
	} else {
		p, err = readPool(r.Pool, r.SubPool)
	}
	if err != nil {
		return nil, err
	}
	err = d.leasing(func(l *leases) (err error) {
		if !p.Prefix.IsValid() {
			if p, err = d.freePool(l, r.V6); err != nil {
				return err
			}
		}
		return l.claimPool(p)
	})
	return poolResponse{p.id(), p.Prefix.String()}, err
}

// freePool chooses a range that neither the host nor a network uses.
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

func (d *Driver) requestAddress(ctx context.Context, r addressRequest) (any, error) {
	asked, err := address(r.Address)
	if err != nil {
		return nil, fmt.Errorf("address %.64q: want an IP address", r.Address)
	}
	gateway := r.Options["RequestAddressType"] == keyGateway
	var p pool
	var given netip.Addr
	err = d.leasing(func(l *leases) (err error) {
		if p, err = l.pool(r.PoolID); err == nil && p.Cluster == "" {
			given, err = l.claim(p, asked, gateway)
		}
		return err
	})
	if err == nil && p.Cluster != "" {
		given, err = d.clusterAddress(ctx, p, asked, gateway)
	}
	return addressResponse{netip.PrefixFrom(given, p.Prefix.Bits()).String()}, err
}

func (d *Driver) releaseAddress(_ context.Context, r addressRequest) (any, error) {
	return nothing{}, d.leasing(func(l *leases) error {
		if asked, err := address(r.Address); err == nil {
			l.release(asked)
		}
		return nil
	})
}

// leasing reads the leases, changes them and stores them, for one caller at a time.
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

// readPool parses a range, and the part of it to lease from. The zero pool means
// that no range was given.
func readPool(whole, part string) (p pool, err error) {
	if whole == "" {
		if part != "" {
			return p, fmt.Errorf("range %.64q: its subnet is missing: give a --subnet that contains it", part)
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

// readPoolID parses the ID of a pool.
func readPoolID(id string) (pool, error) {
	whole, part, _ := strings.Cut(id, " ")
	if whole == "" {
		return pool{}, fmt.Errorf("pool %.64q: it does not exist", id)
	}
	if name, ok := strings.CutPrefix(part, keyCluster+"="); ok {
		p, err := readPool(whole, "")
		p.Cluster = name
		return p, err
	}
	return readPool(whole, part)
}
