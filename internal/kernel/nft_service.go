package kernel

import (
	"encoding/binary"
	"slices"

	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// entriesPerTransaction bounds what the kernel is given at once: the time that
// a transaction takes grows faster than its size. A service is never divided.
const entriesPerTransaction = 100_000

// serviceOps are the steps on the table of services.
type serviceOps struct {
	makeTable, dropTable bool
	ops                  []plan.Op
	unbound              unbound
}

// sortServices takes the steps on the table of services out of the others.
func sortServices(ops []plan.Op) (services serviceOps, others []plan.Op) {
	for _, op := range ops {
		switch op.Object.(type) {
		case plan.ServiceTable:
			services.makeTable, services.dropTable = !op.Del, op.Del
		case plan.NFTService:
			services.ops = append(services.ops, op)
		default:
			others = append(others, op)
		}
	}
	return services, others
}

// queueServices adds the steps to the pending transaction, up to the bound; it
// returns those that are left. Services go before others come, which may answer
// on the same frontends.
func (h *Host) queueServices(s serviceOps) (left serviceOps, err error) {
	t := serviceTable()
	switch {
	case s.dropTable:
		h.nft.AddTable(t) // so that deleting succeeds whether or not it is there
		h.nft.DelTable(t)
		return serviceOps{}, nil
	case s.makeTable:
		s.ops = slices.DeleteFunc(s.ops, func(op plan.Op) bool { return op.Del })
		for i := range s.ops {
			s.ops[i].Old = nil
		}
	}
	present, err := h.damaged(s)
	if err != nil {
		return left, err
	}
	changes := make([]serviceStep, len(s.ops))
	room := entriesPerTransaction
	for i, op := range s.ops {
		changes[i] = s.unbound.take(stepOf(op, present))
		if room -= len(changes[i].to.Add) + len(changes[i].to.Del); room < 0 && i > 0 {
			left, changes = serviceOps{ops: s.ops[i:], unbound: s.unbound}, changes[:i]
			break
		}
	}
	return left, h.queueSteps(changes)
}

// serviceStep is a step on one service.
type serviceStep struct {
	plan.NFTService
	to plan.ServiceChange
	// gone says that the service is taken away, and remains are the elements of
	// the shared maps that are found to be there of a damaged one.
	gone    bool
	remains map[string][]nftables.SetElement
	// unbound are elements of its clients that have to go.
	unbound []nftables.SetElement
}

// stepOf works the step out; present is what is there of damaged services.
func stepOf(op plan.Op, present map[string]*foundService) serviceStep {
	s, _ := op.Object.(plan.NFTService)
	old, changed := op.Old.(plan.NFTService)
	switch {
	case op.Del && s.Damaged:
		return present[s.Service].replace(serviceStep{NFTService: s, gone: true})
	case op.Del:
		return serviceStep{NFTService: s, to: s.Removal(), gone: true}
	case changed && old.Damaged:
		return present[s.Service].replace(serviceStep{NFTService: s, to: s.From(nil)})
	case changed:
		return serviceStep{NFTService: s, to: s.From(&old)}
	default:
		return serviceStep{NFTService: s, to: s.From(nil)}
	}
}

// queueSteps adds the steps in an order that the kernel takes: a chain is
// emptied before its maps go, and nothing leads to it when it goes itself.
func (h *Host) queueSteps(steps []serviceStep) error {
	for _, s := range steps {
		c, keep := ownChain(s.Chain()), ownChain(s.Keep())
		switch {
		case s.to.New && !s.gone:
			h.nft.AddChain(c)
		case s.to.Rules && !s.to.New:
			h.nft.FlushChain(c)
		}
		if s.to.Clients {
			h.nft.AddChain(keep)
		}
		if !s.to.New && s.to.Rules && (s.Remembers() || s.to.NoKeep) {
			h.nft.FlushChain(keep)
		}
	}
	if err := h.queueEntries(steps, true); err != nil {
		return err
	}
	for _, s := range steps {
		for _, name := range s.to.Drop {
			h.nft.DelSet(&nftables.Set{Name: name, Table: serviceTable()})
		}
		if s.to.NoKeep {
			h.nft.DelChain(ownChain(s.Keep()))
		}
		switch {
		case s.gone && !s.to.New:
			h.nft.DelChain(ownChain(s.Chain()))
		case !s.gone:
			if err := h.queueOwn(s); err != nil {
				return err
			}
		}
	}
	return h.queueEntries(steps, false)
}

func ownChain(name string) *nftables.Chain {
	return &nftables.Chain{Name: name, Table: serviceTable()}
}

// queueOwn adds what is the service's alone, but for the buckets.
func (h *Host) queueOwn(s serviceStep) error {
	if s.to.Rules && s.Ring != "" {
		if err := h.nft.AddSet(realsSet(s.NFTService), nil); err != nil {
			return err
		}
	}
	if s.to.Clients {
		if err := h.nft.AddSet(clientsSet(s.NFTService), nil); err != nil {
			return err
		}
	}
	if err := h.queueUnbound(s); err != nil || !s.to.Rules {
		return err
	}
	add := func(chain string, exprs []expr.Any) {
		h.nft.AddRule(&nftables.Rule{Table: serviceTable(), Chain: ownChain(chain), Exprs: exprs,
			UserData: userdata.AppendString(nil, userdata.TypeComment, serviceComment(s.NFTService))})
	}
	for _, exprs := range serviceRules(s.NFTService) {
		add(s.Chain(), exprs)
	}
	if s.Remembers() {
		add(s.Keep(), keepRule(s.NFTService))
	}
	return nil
}

// queueEntries adds or deletes the steps' elements, those of one map together.
func (h *Host) queueEntries(steps []serviceStep, del bool) error {
	do := h.nft.SetAddElements
	if del {
		do = h.nft.SetDeleteElements
	}
	in := func(set *nftables.Set, all []nftables.SetElement) error {
		for part := range slices.Chunk(all, elementsPerMessage) {
			if err := do(set, part); err != nil {
				return err
			}
		}
		return nil
	}
	shared := map[string][]nftables.SetElement{}
	for _, s := range steps {
		entries := s.to.Add
		if del {
			entries = s.to.Del
			for set, elements := range s.remains {
				shared[set] = append(shared[set], keysOf(elements)...)
			}
		}
		var buckets []nftables.SetElement
		for _, e := range entries {
			if set, element := encodeEntry(s.NFTService, e); e.At.IsValid() {
				shared[set] = append(shared[set], element)
			} else {
				buckets = append(buckets, element)
			}
		}
		if err := in(realsSet(s.NFTService), buckets); err != nil {
			return err
		}
	}
	for _, set := range sharedSets() {
		if err := in(set, shared[set.Name]); err != nil {
			return err
		}
	}
	return nil
}

// encodeEntry returns the set and the netlink form of an element.
func encodeEntry(s plan.NFTService, e plan.ServiceEntry) (set string, element nftables.SetElement) {
	if !e.At.IsValid() {
		element.Key = binary.NativeEndian.AppendUint32(nil, uint32(e.Bucket))
		element.Val = e.Real.Addr().AsSlice()
		if e.Real.Port() != 0 {
			element.Val = append(element.Val, port(e.Real.Port())...)
		}
		return e.Map, element
	}
	key := slices.Concat(e.At.Addr().AsSlice(), []byte{protoNumbers[e.Proto], 0, 0, 0}, port(e.At.Port()))
	switch e.Map {
	case plan.MapServices:
		element.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: s.Chain()}
	case plan.MapPersistent:
		key = slices.Concat(key, e.Real.Addr().AsSlice(), port(e.Real.Port()))
		element.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: s.Keep()}
	case plan.MapAnswers:
		key = slices.Concat(key, e.Real.Addr().AsSlice(), port(e.Real.Port()))
		element.VerdictData = &expr.Verdict{Kind: expr.VerdictAccept}
		if e.Astray {
			element.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: "astray"}
		}
	}
	element.Key = key
	suffix := "6"
	if e.At.Addr().Is4() {
		suffix = "4"
	}
	return e.Map + suffix, element
}

// keysOf returns elements by their keys alone.
func keysOf(all []nftables.SetElement) []nftables.SetElement {
	keys := make([]nftables.SetElement, len(all))
	for i, e := range all {
		keys[i].Key = e.Key
	}
	return keys
}
