package docker

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/ipam"
	"fairlead/internal/model"
)

// pool is an address range that is leased to a network.
type pool struct {
	Prefix netip.Prefix `json:"prefix"`
	// Range is the part from which addresses are chosen.
	Range netip.Prefix `json:"range"`
	// Claimed means that Docker has requested the pool since its start.
	Claimed bool `json:"claimed,omitempty"`
	// Cluster is the name of the cluster's network that has the range, empty if none has.
	Cluster string `json:"cluster,omitempty"`
	// own are the blocks of the host from which addresses of a cluster's network are chosen, and
	// used the addresses that are in use there. last is the address that was leased last.
	own  []netip.Prefix
	used map[netip.Addr]bool
	last netip.Addr
}

func (p pool) id() string {
	if p.Cluster != "" {
		return p.Prefix.String() + " " + keyCluster + "=" + p.Cluster
	}
	if p.Range == p.Prefix {
		return p.Prefix.String()
	}
	return p.Prefix.String() + " " + p.Range.String()
}

// lease is a leased address of a pool.
type lease struct {
	Addr netip.Addr `json:"addr"`
	// Asked means that Docker requested this address, or that it is a gateway.
	Asked   bool `json:"asked,omitempty"`
	Claimed bool `json:"claimed,omitempty"`
}

// The keys of notes.
const (
	poolKey  = "docker pool "
	leaseKey = "docker lease "
	ulaKey   = "docker ula"
)

// leases holds all leases, and the changes to be stored.
type leases struct {
	pools  map[string]pool
	leases map[netip.Addr]lease
	// ula is the host's range of unique local addresses (RFC 4193).
	ula netip.Prefix
	// lasting and passing are the notes to be written.
	lasting, passing map[string]any
}

func readLeases(lasting, passing map[string]json.RawMessage) (*leases, error) {
	l := &leases{map[string]pool{}, map[netip.Addr]lease{}, netip.Prefix{}, map[string]any{}, map[string]any{}}
	for _, notes := range []map[string]json.RawMessage{lasting, passing} {
		for key, raw := range notes {
			if err := l.read(key, raw); err != nil {
				return nil, fmt.Errorf("read %s: %w", key, err)
			}
		}
	}
	return l, nil
}

func (l *leases) read(key string, raw json.RawMessage) error {
	switch {
	case strings.HasPrefix(key, poolKey):
		var p pool
		err := json.Unmarshal(raw, &p)
		l.pools[p.id()] = p
		return err
	case strings.HasPrefix(key, leaseKey):
		var a lease
		err := json.Unmarshal(raw, &a)
		l.leases[a.Addr] = a
		return err
	case key == ulaKey:
		return json.Unmarshal(raw, &l.ula)
	}
	return nil
}

func (l *leases) setPool(p pool) {
	l.pools[p.id()], l.lasting[poolKey+p.id()] = p, p
}

func (l *leases) setLease(a lease) {
	l.leases[a.Addr] = a
	notes := l.passing
	if a.Asked {
		notes = l.lasting
	}
	notes[leaseKey+a.Addr.String()] = a
}

func (l *leases) dropLease(addr netip.Addr) {
	delete(l.leases, addr)
	l.lasting[leaseKey+addr.String()], l.passing[leaseKey+addr.String()] = nil, nil
}

// unclaim marks all leases as unclaimed, for a Docker engine that has started.
func (l *leases) unclaim() {
	for _, p := range l.pools {
		p.Claimed = false
		l.setPool(p)
	}
	for _, a := range l.leases {
		a.Claimed = false
		l.setLease(a)
	}
}

// dropUnused drops the addresses that this driver chose for containers and that no
// endpoint has. Docker does not release them if it was killed.
func (l *leases) dropUnused(used map[netip.Addr]bool) {
	for addr, a := range l.leases {
		if !a.Asked && !used[addr] {
			l.dropLease(addr)
		}
	}
}

// claimPool leases a pool. It returns an error if the pool overlaps with a claimed
// one.
func (l *leases) claimPool(p pool) error {
	for id, o := range l.pools {
		if !o.Prefix.Overlaps(p.Prefix) || id == p.id() && !o.Claimed {
			continue
		}
		if o.Claimed || len(l.within(o)) > 0 {
			return fmt.Errorf("pool %s overlaps with %s of another network: choose another subnet", p.Prefix, o.Prefix)
		}
		l.releasePool(id) // Docker has forgotten it
	}
	p.Claimed = true
	l.setPool(p)
	return nil
}

// pool returns the pool with that ID. An unknown pool was leased before the store
// was lost; it is added again.
func (l *leases) pool(id string) (pool, error) {
	if p, ok := l.pools[id]; ok {
		return p, nil
	}
	p, err := readPoolID(id)
	if err == nil {
		l.setPool(p)
	}
	return p, err
}

// releasePool releases a pool. While addresses of it are leased, the pool is only
// marked as unclaimed.
func (l *leases) releasePool(id string) {
	p, ok := l.pools[id]
	if !ok {
		return
	}
	p.Claimed = false
	l.setPool(p)
	if len(l.within(p)) == 0 {
		delete(l.pools, id)
		l.lasting[poolKey+id] = nil
	}
}

// within returns the leased addresses of a pool.
func (l *leases) within(p pool) []netip.Addr {
	return slices.DeleteFunc(slices.Collect(maps.Keys(l.leases)),
		func(a netip.Addr) bool { return !p.Prefix.Contains(a) })
}

// claim leases the requested address, or a free one of the pool's range if none is
// requested.
func (l *leases) claim(p pool, asked netip.Addr, gateway bool) (netip.Addr, error) {
	if !asked.IsValid() {
		free, ok := l.lowest(p)
		if !ok && p.Cluster != "" {
			return free, fmt.Errorf("%w in this host's blocks %s of network %s: `fairlead cluster status` shows why it "+
				"gets no other block", errFull, joined(p.own), p.Cluster)
		}
		if !ok {
			return free, fmt.Errorf("no address is free in %s: remove a container, or create a network with a "+
				"larger --ip-range", p.Range)
		}
		l.setLease(lease{free, gateway, true})
		return free, nil
	}
	if !p.Prefix.Contains(asked) {
		return asked, fmt.Errorf("address %s is not in %s: choose another address", asked, p.Prefix)
	}
	if inUse, ok := l.leases[asked]; ok && inUse.Claimed {
		return asked, fmt.Errorf("address %s is already in use: choose another, or remove the container that has it",
			asked)
	}
	l.dropLease(asked)
	l.setLease(lease{asked, true, true})
	return asked, nil
}

func (l *leases) release(addr netip.Addr) {
	if _, inUse := l.leases[addr]; inUse {
		l.dropLease(addr)
	}
}

// lowest returns the first free address of the range. The last address of an IPv4
// subnet is reserved for the host, which uses it on a parent's LAN.
func (l *leases) lowest(p pool) (netip.Addr, bool) {
	if p.Cluster != "" {
		return l.nextOwn(p)
	}
	s := model.Subnet{Prefix: p.Prefix}
	for a := p.Range.Addr(); p.Range.Contains(a); a = a.Next() {
		if _, inUse := l.leases[a]; inUse || !s.Usable(a) {
			continue
		}
		if a.Is4() && p.Prefix.Bits() < 30 && !s.Usable(a.Next()) {
			continue
		}
		return a, true
	}
	return netip.Addr{}, false
}

// nextOwn returns the next free address of the host's blocks after the one that was leased last. If that is not known,
// because the daemon was restarted, it is the highest that is leased.
func (l *leases) nextOwn(p pool) (netip.Addr, bool) {
	s, last := model.Subnet{Prefix: p.Prefix}, p.last
	for a := range l.leases {
		if !p.last.IsValid() && last.Less(a) && slices.ContainsFunc(p.own,
			func(block netip.Prefix) bool { return block.Contains(a) }) {
			last = a
		}
	}
	return ipam.Next(p.own, last, func(a netip.Addr) bool {
		_, inUse := l.leases[a]
		return !inUse && !p.used[a] && s.Usable(a)
	})
}

// pools4 is the range from which IPv4 pools are chosen if Docker requests no
// particular pool. IPv6 pools are chosen from the host's own /48.
var pools4 = netip.MustParsePrefix("10.201.0.0/16")

// free chooses a pool that overlaps neither with busy nor with a leased pool.
func (l *leases) free(v6 bool, busy []netip.Prefix) (pool, error) {
	for _, p := range l.pools {
		busy = append(busy, p.Prefix)
	}
	from, bits := pools4, 24
	if v6 {
		if !l.ula.IsValid() {
			l.ula = newULA()
			l.lasting[ulaKey] = l.ula
		}
		from, bits = l.ula, 64
	}
	for i := range 1 << 8 {
		bytes := from.Addr().AsSlice()
		bytes[bits/8-1] = byte(i)
		addr, _ := netip.AddrFromSlice(bytes)
		p := netip.PrefixFrom(addr, bits)
		if !slices.ContainsFunc(busy, p.Overlaps) {
			return pool{Prefix: p, Range: p}, nil
		}
	}
	return pool{}, fmt.Errorf("all /%d subnets of %s are in use: choose a --subnet", bits, from)
}

// newULA returns a random /48 of unique local addresses (RFC 4193).
func newULA() netip.Prefix {
	bytes := [16]byte{0: 0xfd}
	_, _ = rand.Read(bytes[1:6]) // never fails
	return netip.PrefixFrom(netip.AddrFrom16(bytes), 48)
}
