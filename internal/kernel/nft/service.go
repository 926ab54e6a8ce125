package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// entriesPerTransaction limits the number of elements in one transaction, because
// the kernel's time for a transaction grows faster than its size. All elements of
// one service are in the same transaction, and so are services that exchange
// frontends.
const entriesPerTransaction = 100_000

// serviceOps are the steps on the table of services.
type serviceOps struct {
	makeTable, dropTable bool
	ops                  []plan.Op
	unbound              unbound
}

// sortServices separates the steps on the table of services from the others. If they make the table, its services are
// new.
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
	if services.makeTable {
		services.ops = slices.DeleteFunc(services.ops, func(op plan.Op) bool { return op.Del })
		for i := range services.ops {
			services.ops[i].Old = nil
		}
	}
	return services, others
}

// queueServices adds steps to the transaction up to entriesPerTransaction, and
// returns the remaining ones. In a transaction, services are removed before
// others are added, which may have the same frontends.
func (h *Handle) queueServices(b *batch, s serviceOps) (left serviceOps, err error) {
	switch {
	case s.dropTable:
		b.dropTable(serviceTable().Table)
		b.dropTable(standInOf(serviceTable().Table))
		return serviceOps{}, nil
	case s.makeTable:
		b.makeTable(serviceTable())
	}
	present, err := h.damaged(s)
	if err != nil {
		return left, err
	}
	var changes []serviceStep
	room := entriesPerTransaction
	groups := byFrontends(s.ops)
	for i, group := range groups {
		var steps []serviceStep
		for _, op := range group {
			step := s.unbound.take(stepOf(op, present))
			room -= len(step.to.Add) + len(step.to.Del)
			steps = append(steps, step)
		}
		if room < 0 && i > 0 {
			left = serviceOps{ops: slices.Concat(groups[i:]...), unbound: s.unbound}
			break
		}
		changes = append(changes, steps...)
	}
	b.queueSteps(changes)
	return left, nil
}

// byFrontends returns the steps in groups. The steps of a group have frontends in
// common: one frees a frontend that another takes, and the kernel refuses to add
// an element that another service still has.
func byFrontends(ops []plan.Op) (groups [][]plan.Op) {
	parent, of := make([]int, len(ops)), map[string]int{}
	root := func(i int) int {
		for parent[i] != i {
			i = parent[i]
		}
		return i
	}
	for i, op := range ops {
		parent[i] = i
		for _, o := range []plan.Object{op.Object, op.Old} {
			s, _ := o.(plan.NFTService)
			for _, at := range s.Frontends {
				key := string(s.Proto) + " " + at.String()
				if other, known := of[key]; known {
					parent[root(other)] = i
				}
				of[key] = i
			}
		}
	}
	place := map[int]int{}
	for i, op := range ops {
		at, known := place[root(i)]
		if !known {
			at = len(groups)
			place[root(i)], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], op)
	}
	return groups
}

// serviceStep is a step on one service.
type serviceStep struct {
	plan.NFTService
	to plan.ServiceChange
	// gone says that the service is removed. remains are the elements of a damaged
	// service that were found in the shared maps.
	gone    bool
	remains map[string][]nftables.SetElement
	// unbound are the elements to delete from the service's map of clients.
	unbound []nftables.SetElement
}

// stepOf returns the step for an operation of the plan. present has what was
// found of the damaged services.
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

// queueSteps adds the steps in an order that the kernel accepts: a chain is
// flushed before its maps are deleted, and elements that refer to a chain are
// deleted before the chain.
func (b *batch) queueSteps(steps []serviceStep) {
	t := serviceTable().Table
	for _, s := range steps {
		switch {
		case s.to.New && !s.gone:
			b.addChain(t, chain{name: s.Chain()})
		case s.to.Rules && !s.to.New:
			b.flushChain(t, s.Chain())
		}
		if s.to.Clients {
			b.addChain(t, chain{name: s.Keep()})
		}
		if !s.to.New && s.to.Rules && (s.Remembers() || s.to.NoKeep) {
			b.flushChain(t, s.Keep())
		}
	}
	b.queueEntries(steps, true)
	for _, s := range steps {
		for _, name := range s.to.Drop {
			b.delSet(t, name)
		}
		if s.to.NoKeep {
			b.delChain(t, s.Keep())
		}
		switch {
		case s.gone && !s.to.New:
			b.delChain(t, s.Chain())
		case !s.gone:
			b.queueService(s)
		}
	}
	b.queueEntries(steps, false)
}

// queueService adds the maps and rules that belong to the service alone, except
// the buckets.
func (b *batch) queueService(s serviceStep) {
	if s.to.Rules && len(s.Ring) > 0 {
		b.addTypeOf(realsSet(s.NFTService), bucketType(s.NFTService))
	}
	if s.to.Clients {
		b.addSet(clientsSet(s.NFTService))
	}
	b.queueUnbound(s)
	if !s.to.Rules {
		return
	}
	comment := serviceComment(s.NFTService)
	t, maps := serviceTable().Table, []*nftables.Set{realsSet(s.NFTService), clientsSet(s.NFTService)}
	for _, text := range s.Rules() {
		b.addRule(t, s.Chain(), compileRule(split(text), maps), comment)
	}
	if s.Remembers() {
		b.addRule(t, s.Keep(), compileRule(split(s.KeepRule()), nil), comment)
	}
}

// queueEntries adds or deletes the steps' elements, grouped by map.
func (b *batch) queueEntries(steps []serviceStep, del bool) {
	do, shared := b.addElements, map[string][]nftables.SetElement{}
	if del {
		do = b.delElements
	}
	for _, s := range steps {
		entries := s.to.Add
		if del {
			entries = s.to.Del
			for set, elements := range s.remains {
				shared[set] = append(shared[set], elements...)
			}
		}
		buckets := 0 // the buckets are the first entries
		for ; buckets < len(entries) && !entries[buckets].At.IsValid(); buckets++ {
		}
		b.queueBuckets(s.NFTService, entries[:buckets], del)
		for _, e := range entries[buckets:] {
			set, element := encodeEntry(s.NFTService, e)
			shared[set] = append(shared[set], element)
		}
	}
	for _, set := range serviceTable().sets {
		do(set, shared[set.Name])
	}
}

// queueBuckets adds or deletes buckets. There are many buckets and few real
// servers: it encodes each real server once, and writes each bucket directly.
func (b *batch) queueBuckets(s plan.NFTService, all []plan.ServiceEntry, del bool) {
	kind, flags := uint16(unix.NFT_MSG_NEWSETELEM), uint16(toMake)
	if del {
		kind, flags = unix.NFT_MSG_DELSETELEM, toDrop
	}
	values, key := map[netip.AddrPort][]byte{}, make([]byte, 4)
	b.lists(kind, flags, realsSet(s), len(all), func(i int) {
		e := all[i]
		value, known := values[e.Real]
		if !known {
			value = encodeReal(e.Real)
			values[e.Real] = value
		}
		binary.NativeEndian.PutUint32(key, uint32(e.Bucket))
		b.element(&nftables.SetElement{Key: key, Val: value}, !del)
	})
}

// encodeReal returns the value of a bucket or of a client's element: the address
// of the real server, and its port unless that is 0.
func encodeReal(at netip.AddrPort) []byte {
	if at.Port() == 0 {
		return at.Addr().AsSlice()
	}
	return append(at.Addr().AsSlice(), port(at.Port())...)
}

// encodeEntry returns the set and the netlink form of an element of the shared
// maps.
func encodeEntry(s plan.NFTService, e plan.ServiceEntry) (set string, element nftables.SetElement) {
	key := slices.Concat(e.At.Addr().AsSlice(), []byte{nlutil.Protocols[e.Proto], 0, 0, 0})
	if e.Real.IsValid() {
		key = slices.Concat(key, e.Real.Addr().AsSlice(), port(e.Real.Port()))
	}
	key = append(key, port(e.At.Port())...)
	switch e.Map {
	case plan.MapServices:
		element.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: s.Chain()}
	case plan.MapPersistent:
		element.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: s.Keep()}
	case plan.MapSourceNAT:
		element.VerdictData = &expr.Verdict{Kind: expr.VerdictAccept}
		if e.Masquerade {
			element.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: "masqueraded"}
		}
	}
	element.Key = key
	suffix := "6"
	if e.At.Addr().Is4() {
		suffix = "4"
	}
	return e.Map + suffix, element
}
