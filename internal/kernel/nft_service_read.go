package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/plan"

	"github.com/google/nftables"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// foundService is what the table holds of a service.
type foundService struct {
	// chains and maps are its own.
	chains, maps []string
	// entries are its elements of the shared maps, as they are.
	entries map[string][]nftables.SetElement
}

// readServices returns the table of services as far as it is as it should be: of
// a service that is not, only that it is damaged, and likewise of one that is in
// none of the plans.
func (h *Host) readServices(plans ...plan.Plan) (plan.Plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	if _, err := h.nft.ListTableOfFamily(plan.ServicesTable, nftables.TableFamilyINet); err != nil {
		return nil, missing(err)
	}
	rules, err := h.ruleData(serviceTable())
	if err != nil {
		return nil, err
	}
	if !skeletonWhole(rules) {
		return nil, nil
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
			same, err := h.holdsService(found[name], s, rules)
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

// skeletonWhole reports whether every chain that services share holds as many
// rules as it should, all with our mark.
func skeletonWhole(rules map[string][][]byte) bool {
	for _, ch := range serviceChains() {
		if !carries(rules[ch.name], plan.Mark, len(ch.rules)) {
			return false
		}
	}
	return true
}

// carries reports whether there are n rules, all with the comment.
func carries(rules [][]byte, comment string, n int) bool {
	mark := append([]byte(comment), 0)
	return len(rules) == n && !slices.ContainsFunc(rules, func(data []byte) bool { return !bytes.Contains(data, mark) })
}

// findServices lists what is in the table, by the services' names. Elements that
// belong to none are the nameless one's.
func (h *Host) findServices() (map[string]*foundService, error) {
	found := map[string]*foundService{}
	of := func(name string) *foundService {
		if found[name] == nil {
			found[name] = &foundService{entries: map[string][]nftables.SetElement{}}
		}
		return found[name]
	}
	chains, err := h.nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list nft chains: %w", err)
	}
	for _, c := range chains {
		if name, ok := plan.NFTServiceOf(c.Name); ok && c.Table.Name == plan.ServicesTable {
			of(name).chains = append(of(name).chains, c.Name)
		}
	}
	sets, err := h.nft.GetSets(serviceTable())
	if err != nil {
		return nil, fmt.Errorf("list nft maps: %w", err)
	}
	for _, s := range sets {
		if name, ok := plan.NFTServiceOf(s.Name); ok {
			of(name).maps = append(of(name).maps, s.Name)
		}
	}
	return found, h.findEntries(of)
}

// findEntries sorts the elements of the shared maps by whose frontends they are.
func (h *Host) findEntries(of func(string) *foundService) error {
	owners := map[string]string{}
	sets := sharedSets()
	// The services' map says who owns a frontend.
	slices.SortFunc(sets, func(a, b *nftables.Set) int { return bytes.Compare([]byte(b.Name), []byte(a.Name)) })
	for _, s := range sets {
		elements, err := h.nft.GetSetElements(s)
		if err != nil {
			return fmt.Errorf("read nft map %s: %w", s.Name, err)
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

// verdictIs reads the verdict of an element, and the chain that it goes to.
func verdictIs(data []byte) (code int32, chain string) {
	d, err := mdlayher.NewAttributeDecoder(data)
	if err != nil {
		return 0, ""
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_VERDICT_CODE:
			code = int32(d.Uint32())
		case unix.NFTA_VERDICT_CHAIN:
			chain = d.String()
		}
	}
	return code, chain
}

// holdsService reports whether what was found is the service.
//
// What clients it remembers is theirs to say, as what conntrack knows is.
func (h *Host) holdsService(f *foundService, s plan.NFTService, rules map[string][][]byte) (bool, error) {
	chains, maps := []string{s.Chain()}, []string{}
	if s.Remembers() {
		chains, maps = append([]string{s.Keep()}, chains...), append(maps, s.Clients())
	}
	if s.Ring != "" {
		maps = append(maps, s.Reals())
	}
	slices.Sort(f.chains)
	slices.Sort(f.maps)
	if s.Damaged || !slices.Equal(f.chains, chains) || !slices.Equal(f.maps, maps) || !f.holdsEntries(s) ||
		!carries(rules[s.Chain()], serviceComment(s), len(serviceRules(s))) || s.Remembers() && !carries(rules[s.Keep()], serviceComment(s), 1) {
		return false, nil
	}
	if s.Ring == "" {
		return true, nil
	}
	buckets, err := h.nft.GetSetElements(realsSet(s))
	if err != nil {
		return false, missing(err)
	}
	return holdsBuckets(buckets, s), nil
}

func holdsBuckets(have []nftables.SetElement, s plan.NFTService) bool {
	if len(have) != s.Ring.Len() {
		return false
	}
	backends := s.Backends.List()
	values := make([][]byte, len(backends))
	for i, b := range backends {
		values[i] = encodeReal(b.At)
	}
	for _, e := range have {
		if len(e.Key) != 4 {
			return false
		}
		bucket := int(binary.NativeEndian.Uint32(e.Key))
		if bucket >= s.Ring.Len() || !bytes.Equal(e.Val, values[s.Ring.At(bucket)]) {
			return false
		}
	}
	return true
}

// holdsEntries reports whether the shared maps have the service's elements, and
// no others of its own.
func (f *foundService) holdsEntries(s plan.NFTService) bool {
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

// damaged finds what is there of the services that are damaged; nothing if none
// is.
func (h *Host) damaged(s serviceOps) (map[string]*foundService, error) {
	if !slices.ContainsFunc(s.ops, func(op plan.Op) bool {
		old, _ := op.Old.(plan.NFTService)
		is, _ := op.Object.(plan.NFTService)
		return old.Damaged || is.Damaged
	}) {
		return nil, nil
	}
	return h.findServices()
}

// replace has the step take away first what was found.
func (f *foundService) replace(s serviceStep) serviceStep {
	s.to.New, s.to.Rules = f == nil || !slices.Contains(f.chains, s.Chain()), true
	if f != nil {
		s.to.Drop, s.remains = f.maps, f.entries
		s.to.NoKeep = !s.Remembers() && slices.Contains(f.chains, s.Keep())
	}
	return s
}
