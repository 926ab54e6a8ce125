package nft

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// foundService has the parts of a service that were found in the table.
type foundService struct {
	// chains and maps are the names of those that belong to this service alone.
	chains, maps []string
	// entries are its elements in the shared maps, by map.
	entries map[string][]nftables.SetElement
}

// ReadServices returns the table of services. A service that equals one of the
// plans' is returned as it is there. A service that differs, or that no plan has,
// is returned as damaged. The result is empty if the skeleton is incomplete, and a
// damaged table without services if the table's replacement was interrupted.
func (h *Handle) ReadServices(plans ...plan.Plan) (plan.Plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	if interrupted, err := h.exists(standInOf(serviceTable().Table)); err != nil || interrupted {
		return plan.Plan{plan.ServiceTable{Damaged: true}}, err
	}
	rules, err := h.nft.comments(serviceTable().Table)
	if err != nil || len(rules) == 0 {
		return nil, err
	}
	if whole, err := h.nft.isWhole(serviceTable(), rules); err != nil || !whole {
		return nil, err
	}
	found, err := h.findServices()
	if err != nil {
		return nil, err
	}
	known := map[string][]plan.NFTService{}
	for _, p := range plans {
		for _, o := range p {
			if s, ok := o.(plan.NFTService); ok {
				known[s.Service] = append(known[s.Service], s)
			}
		}
	}
	have := plan.Plan{plan.ServiceTable{}}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		var is plan.Object = plan.NFTService{Balanced: plan.Balanced{Service: name}, Damaged: true}
		for _, s := range known[name] {
			same, err := h.serviceMatches(found[name], s, rules)
			if err != nil {
				return nil, err
			}
			if same {
				is = s
				break
			}
		}
		have = append(have, is)
	}
	return have, nil
}

// findServices lists the contents of the table by the names of the services.
// Elements that belong to no service are listed under the empty name.
func (h *Handle) findServices() (map[string]*foundService, error) {
	found := map[string]*foundService{}
	of := func(name string) *foundService {
		if found[name] == nil {
			found[name] = &foundService{entries: map[string][]nftables.SetElement{}}
		}
		return found[name]
	}
	chains, err := h.nft.chains(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	for _, c := range chains {
		if name, ok := plan.NFTServiceOf(c.Name); ok && c.Table.Name == plan.ServicesTable {
			of(name).chains = append(of(name).chains, c.Name)
		}
	}
	sets, err := h.nft.sets(serviceTable().Table)
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		if name, ok := plan.NFTServiceOf(set); ok {
			of(name).maps = append(of(name).maps, set)
		}
	}
	return found, h.findEntries(of)
}

// findEntries assigns the elements of the shared maps to the services that own
// their frontends.
func (h *Handle) findEntries(of func(string) *foundService) error {
	owners := map[string]string{}
	sets := slices.Clone(serviceTable().sets)
	// The map of services comes first in this order: it states which service owns
	// a frontend.
	slices.SortFunc(sets, func(a, b *nftables.Set) int { return bytes.Compare([]byte(b.Name), []byte(a.Name)) })
	for _, s := range sets {
		elements, err := h.nft.elements(s)
		if err != nil {
			return err
		}
		addr := 16
		if s.Name[len(s.Name)-1] == '4' {
			addr = 4
		}
		for _, e := range elements {
			// The address and the protocol come first, the port last.
			key := string(e.Key[:min(len(e.Key), addr+4)]) + string(e.Key[max(0, len(e.Key)-4):])
			if s.Name == plan.MapServices+s.Name[len(s.Name)-1:] {
				_, chain := verdictIs(e.Val)
				owners[key], _ = plan.NFTServiceOf(chain)
			}
			found := of(owners[key])
			found.entries[s.Name] = append(found.entries[s.Name], e)
		}
	}
	return nil
}

// verdictIs reads the verdict of an element, and the name of its target chain.
func verdictIs(data []byte) (code int32, chain string) {
	return int32(nlutil.Number(data, unix.NFTA_VERDICT_CODE)),
		nlutil.Text(data, unix.NFTA_VERDICT_CHAIN)
}

// serviceMatches reports whether what was found equals the service. It does not
// compare the recorded clients: they are state of the traffic, like conntrack
// entries.
func (h *Handle) serviceMatches(f *foundService, s plan.NFTService, rules map[string][][]byte) (bool, error) {
	chains, maps := []string{s.Chain()}, []string{}
	if s.Remembers() {
		chains, maps = append([]string{s.Keep()}, chains...), append(maps, s.Clients())
	}
	if len(s.Ring) > 0 {
		maps = append(maps, s.Reals())
	}
	slices.Sort(f.chains)
	slices.Sort(f.maps)
	if s.Damaged || !slices.Equal(f.chains, chains) || !slices.Equal(f.maps, maps) || !f.entriesMatch(s) ||
		!haveComment(rules[s.Chain()], serviceComment(s), len(s.Rules())) ||
		s.Remembers() && !haveComment(rules[s.Keep()], serviceComment(s), 1) {
		return false, nil
	}
	if len(s.Ring) == 0 {
		return true, nil
	}
	buckets, err := h.nft.elements(realsSet(s))
	if err != nil {
		return false, missing(err)
	}
	return bucketsMatch(buckets, s), nil
}

func bucketsMatch(have []nftables.SetElement, s plan.NFTService) bool {
	if len(have) != len(s.Ring) {
		return false
	}
	backends := s.Backends
	values := make([][]byte, len(backends))
	for i, b := range backends {
		values[i] = encodeReal(b.At)
	}
	for _, e := range have {
		if len(e.Key) != 4 {
			return false
		}
		bucket := int(binary.NativeEndian.Uint32(e.Key))
		if bucket >= len(s.Ring) || !bytes.Equal(e.Val, values[s.Ring[bucket]]) {
			return false
		}
	}
	return true
}

// entriesMatch reports whether the elements found in the shared maps are exactly
// those of the service.
func (f *foundService) entriesMatch(s plan.NFTService) bool {
	type value struct {
		code  int32
		chain string
	}
	have := map[string]value{}
	n := 0
	for set, elements := range f.entries {
		for _, e := range elements {
			code, chain := verdictIs(e.Val)
			have[set+string(e.Key)] = value{code, chain}
			n++
		}
	}
	wanted := s.Entries()
	if len(wanted) != n {
		return false
	}
	for _, e := range wanted {
		set, element := encodeEntry(s, e)
		is, ok := have[set+string(element.Key)]
		if v := element.VerdictData; !ok || v != nil && is != (value{int32(v.Kind), v.Chain}) {
			return false
		}
	}
	return true
}

// damaged returns what the table has of all services if one of the steps' services
// is damaged, else nil.
func (h *Handle) damaged(s serviceOps) (map[string]*foundService, error) {
	if !slices.ContainsFunc(s.ops, func(op plan.Op) bool {
		old, _ := op.Old.(plan.NFTService)
		is, _ := op.Object.(plan.NFTService)
		return old.Damaged || is.Damaged
	}) {
		return nil, nil
	}
	return h.findServices()
}

// replace returns the step extended so that it first removes what was found.
func (f *foundService) replace(s serviceStep) serviceStep {
	s.to.New, s.to.Rules = f == nil || !slices.Contains(f.chains, s.Chain()), true
	if f != nil {
		s.to.Drop, s.remains = f.maps, f.entries
		s.to.NoKeep = !s.Remembers() && slices.Contains(f.chains, s.Keep())
	}
	return s
}
