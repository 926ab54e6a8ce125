package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// InstalledService is a virtual service that a data plane has in the kernel,
// created by Fairlead or by another program.
type InstalledService struct {
	plan.Balanced
	Plane model.Plane
}

// InstalledServices returns the virtual services of every data plane. It is
// read-only. nftables has no weights: there the weight is a real server's number of
// buckets. IPVS has no names, and its list includes the services of other programs.
func (h *Host) InstalledServices() ([]InstalledService, error) {
	var all []InstalledService
	for _, read := range []func() ([]InstalledService, error){h.installedEBPF, h.installedNFT, h.installedIPVS} {
		found, err := read()
		if err != nil {
			return nil, fmt.Errorf("read virtual services: %w", err)
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b InstalledService) int { return strings.Compare(a.Service, b.Service) })
	return all, nil
}

func (h *Host) installedEBPF() (all []InstalledService, err error) {
	names, err := h.rtnl.LinkNames()
	if err != nil {
		return nil, err
	}
	return all, h.withDatapath(func(s *ebpf.ReadOnly) error {
		found, err := s.Services()
		for _, v := range found {
			all = append(all, InstalledService{balancedOf(v, names, nil), model.PlaneEBPF})
		}
		return err
	})
}

// installedNFT reads the services in the nft table.
func (h *Host) installedNFT() ([]InstalledService, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	if _, err := h.nft.ListTableOfFamily(plan.ServicesTable, nftables.TableFamilyINet); err != nil {
		return nil, missing(err)
	}
	found, err := h.findServices()
	if err != nil {
		return nil, err
	}
	var all []InstalledService
	for name, f := range found {
		if !slices.Contains(f.chains, (plan.NFTService{Balanced: plan.Balanced{Service: name}}).Chain()) {
			continue
		}
		s, err := h.installedChain(name, f)
		if err != nil {
			return nil, err
		}
		all = append(all, InstalledService{s, model.PlaneNFT})
	}
	return all, nil
}

// installedChain composes a service from its set elements and its chain.
func (h *Host) installedChain(name string, f *foundService) (plan.Balanced, error) {
	s := plan.NFTService{Balanced: plan.Balanced{Service: name, Forward: model.ForwardNAT, Scheduler: model.RoundRobin}}
	rules, err := h.nft.GetRules(serviceTable(), managedChain(s.Chain()))
	if err != nil {
		return s.Balanced, missing(err)
	}
	if slices.Contains(f.maps, s.Clients()) {
		keep, err := h.nft.GetRules(serviceTable(), managedChain(s.Keep()))
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
	buckets, err := h.nft.GetSetElements(&nftables.Set{Table: serviceTable(), Name: s.Reals()})
	if err != nil {
		return s.Balanced, missing(err)
	}
	readBuckets(&s.Balanced, buckets, f.masqueraded())
	return s.Balanced, nil
}

// readRules reads the scheduler and the persistence from the rules of a service.
func readRules(s *plan.Balanced, rules []*nftables.Rule) {
	for _, r := range rules {
		for _, e := range r.Exprs {
			switch e := e.(type) {
			case *expr.Hash:
				s.Scheduler = model.SourceHashing
				if e.Length%16 != 0 && e.Length != 4 { // the hash includes the port
					s.Scheduler = model.MaglevHashing
				}
			case *expr.Dynset:
				s.Persistence = e.Timeout
			}
		}
	}
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
		if n > 1 && s.Scheduler == model.RoundRobin {
			s.Scheduler = model.WeightedRoundRobin
		}
	}
	slices.SortFunc(backends, func(a, b plan.Backend) int { return a.At.Compare(b.At) })
	indexes := make([]uint16, len(ring))
	for i, at := range ring {
		n, _ := slices.BinarySearchFunc(backends, at, func(b plan.Backend, at netip.AddrPort) int { return b.At.Compare(at) })
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

// installedIPVS returns the virtual services of IPVS that have an address, without
// those for firewall marks.
func (h *Host) installedIPVS() ([]InstalledService, error) {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if there, err := b.reach(h.ns); err != nil || !there {
		return nil, err
	}
	found, err := b.conn.Services()
	if err != nil {
		return nil, err
	}
	var all []InstalledService
	for _, s := range found {
		if s.Mark != 0 {
			continue
		}
		reals, err := b.conn.Destinations(s.ID)
		if err != nil {
			return nil, err
		}
		all = append(all, InstalledService{balancedOfIPVS(s, reals), model.PlaneIPVS})
	}
	slices.SortFunc(all, func(a, b InstalledService) int { return a.Frontends[0].Compare(b.Frontends[0]) })
	return all, nil
}

func balancedOfIPVS(s ipvs.Service, reals []ipvs.Destination) plan.Balanced {
	v := fromIPVS(s, reals)
	return plan.Balanced{Proto: v.Proto, Frontends: []netip.AddrPort{s.At},
		Scheduler: model.Scheduler(s.Scheduler), Forward: v.Forward, Tunnel: v.Tunnel, Persistence: v.Persistence,
		Backends: v.Reals}
}
