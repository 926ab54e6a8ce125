package nft

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Installed reads the services in the nft table.
func (h *Handle) Installed() ([]plan.Balanced, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	if err := h.nft.find(serviceTable().Table); err != nil {
		return nil, missing(err)
	}
	found, err := h.findServices()
	if err != nil {
		return nil, err
	}
	var all []plan.Balanced
	for name, f := range found {
		if !slices.Contains(f.chains, (plan.NFTService{Balanced: plan.Balanced{Service: name}}).Chain()) {
			continue
		}
		s, err := h.installedChain(name, f)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// installedChain composes a service from its set elements and its chain.
func (h *Handle) installedChain(name string, f *foundService) (plan.Balanced, error) {
	s := plan.NFTService{Balanced: plan.Balanced{Service: name, Forward: model.ForwardNAT}}
	rules, err := h.nft.rules(nftables.TableFamilyINet, plan.ServicesTable, s.Chain())
	if err != nil {
		return s.Balanced, missing(err)
	}
	if slices.Contains(f.maps, s.Clients()) {
		keep, err := h.nft.rules(nftables.TableFamilyINet, plan.ServicesTable, s.Keep())
		if err != nil {
			return s.Balanced, missing(err)
		}
		rules = append(rules, keep...)
	}
	readRules(&s.Balanced, rules)
	var frontends []model.Frontend
	for _, family := range families {
		for _, e := range f.entries[plan.MapServices+family.suffix] {
			at, proto := frontendOf(e.Key, family.addrLen)
			s.Proto = proto
			frontends = append(frontends, model.Frontend{Proto: proto, At: at})
		}
	}
	slices.SortFunc(frontends, func(a, b model.Frontend) int { return a.At.Compare(b.At) })
	s.Frontends = plan.FrontendAddrs(frontends)
	if !slices.Contains(f.maps, s.Reals()) {
		return s.Balanced, nil
	}
	buckets, err := h.nft.elements(&nftables.Set{Table: serviceTable().Table, Name: s.Reals()})
	if err != nil {
		return s.Balanced, missing(err)
	}
	readBuckets(&s.Balanced, buckets, f.masqueraded())
	return s.Balanced, nil
}

// readRules reads the scheduler and the persistence from the rules of a service.
func readRules(s *plan.Balanced, rules []foundRule) {
	var traits model.SchedulerTraits
	for _, r := range rules {
		for _, e := range r.decode().Exprs {
			switch e := e.(type) {
			case *expr.Hash:
				traits.Hashes = model.ClientKey
				if e.Length%16 != 0 && e.Length != 4 { // the hash includes the port
					traits.Hashes = model.FullKey
				}
			case *expr.Dynset:
				s.Persistence = e.Timeout
			}
		}
	}
	s.Scheduler = model.SchedulerWith(traits)
}

// frontendOf parses the key of an element: an address, a protocol and a port, each
// padded to 4 bytes.
func frontendOf(key []byte, addrLen uint32) (netip.AddrPort, model.Proto) {
	if len(key) < int(addrLen)+6 {
		return netip.AddrPort{}, ""
	}
	a, _ := netip.AddrFromSlice(key[:addrLen])
	proto := model.TCP
	if key[addrLen] == unix.IPPROTO_UDP {
		proto = model.UDP
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(key[addrLen+4:])), proto
}

// masqueraded returns the real servers that see the host's address as the client.
func (f *foundService) masqueraded() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, family := range families {
		for _, e := range f.entries[plan.MapSourceNAT+family.suffix] {
			if at := family.addrLen + 4; len(e.Key) >= int(at+family.addrLen) {
				a, _ := netip.AddrFromSlice(e.Key[at : at+family.addrLen])
				_, chain := verdictIs(e.Val)
				all[a] = chain != ""
			}
		}
	}
	return all
}

// readBuckets reads the real servers that have buckets, and the ring of their
// indices.
func readBuckets(s *plan.Balanced, buckets []nftables.SetElement, masqueraded map[netip.Addr]bool) {
	slices.SortFunc(buckets, func(a, b nftables.SetElement) int { return bytes.Compare(bucketKey(a), bucketKey(b)) })
	count, ring := map[netip.AddrPort]uint32{}, make([]netip.AddrPort, len(buckets))
	for i, e := range buckets {
		n := 4
		if len(e.Val) >= 16 {
			n = 16
		}
		if len(e.Val) < n {
			continue
		}
		a, _ := netip.AddrFromSlice(e.Val[:n])
		ring[i] = netip.AddrPortFrom(a, 0)
		if len(e.Val) >= n+2 {
			ring[i] = netip.AddrPortFrom(a, binary.BigEndian.Uint16(e.Val[n:]))
		}
		count[ring[i]]++
	}
	var backends []plan.Backend
	for at, n := range count {
		backends = append(backends, plan.Backend{At: at, Weight: n, Masquerade: masqueraded[at.Addr()]})
		if n > 1 && s.Scheduler.Traits().Hashes == model.NoKey {
			s.Scheduler = model.SchedulerWith(model.SchedulerTraits{Weighted: true})
		}
	}
	slices.SortFunc(backends, func(a, b plan.Backend) int { return a.At.Compare(b.At) })
	indexes := make([]uint16, len(ring))
	for i, at := range ring {
		n, _ := slices.BinarySearchFunc(backends, at,
			func(b plan.Backend, at netip.AddrPort) int { return b.At.Compare(at) })
		indexes[i] = uint16(n)
	}
	s.Backends, s.Ring = backends, indexes
}

// bucketKey returns the number of a bucket in big endian, so that buckets can be
// sorted by it.
func bucketKey(e nftables.SetElement) []byte {
	if len(e.Key) != 4 {
		return nil
	}
	return binary.BigEndian.AppendUint32(nil, binary.NativeEndian.Uint32(e.Key))
}
