package kernel

import (
	"fmt"
	"reflect"
	"slices"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

// kinds is what Fairlead does with each kind of object. Observe lists the objects
// that no plan has in this order.
var kinds = kindsByType(
	uplinksKind, ingressKind, outboundKind, localClientsKind, localRealEgressKind, fastPathKind, bindHooksKind,
	overlayProgramsKind, overlayStationKind, ebpfMappingKind, grantKind, ebpfServiceKind,
	tableKind, nftMappingKind, memberKind, proxiedKind, serviceTableKind, nftServiceKind,
	flowtableKind, flowtableLinkKind, noTrackKind, guardKind, filterKind,
	ipvsTableKind, ipvsMemberKind, localRouteKind, ipvsServiceKind,
	linkKind, subLinkKind, staleLinkKind, deviceKind, ipoibKind, tunnelKind, wireGuardKind, wireGuardPeerKind,
	forwardingKind, neighborKind, addressKind, virtualAddressKind, routeKind, sysctlKind, shaperKind,
)

// kind is what Fairlead does with objects of type T. Objects of a plan.Group have
// no set, del and read, because the group has them.
type kind[T plan.Object] struct {
	// set creates the object or changes it to this state.
	set func(*Host, T) error
	// del removes the object. It may return an error that means that the object does
	// not exist (absent).
	del func(*Host, T) error
	// read returns the object as the kernel has it, and nil or an absent error if it
	// is missing.
	read func(*Host, T) (plan.Object, error)
	// leftovers returns the objects of Fairlead with keys that are not in known. It
	// is nil if leftovers of another kind lists them.
	leftovers func(h *Host, known map[string]bool) (plan.Plan, error)
	// concerned reports whether pending events show that the object differs.
	concerned func(*watch.Matcher, T) bool
	// polled is true if the kernel sends no events for changes, so that the watcher
	// must check the object itself.
	polled bool
}

// withLeftovers returns the kind with a function that lists its objects.
func (k kind[T]) withLeftovers(list func(*Host, map[string]bool) (plan.Plan, error)) kind[T] {
	k.leftovers = list
	return k
}

// on returns a set or del that a part of the Host carries out.
func on[P, T any](part func(*Host) P, do func(P, T) error) func(*Host, T) error {
	return func(h *Host, o T) error { return do(part(h), o) }
}

// reading returns a read or leftovers that a part of the Host carries out.
func reading[P, T, R any](part func(*Host) P, read func(P, T) (R, error)) func(*Host, T) (R, error) {
	return func(h *Host, o T) (R, error) { return read(part(h), o) }
}

// behaviour is a kind of which the type is not known.
type behaviour = kind[plan.Object]

func (k kind[T]) behaviour() (reflect.Type, behaviour) {
	b := behaviour{leftovers: k.leftovers, polled: k.polled}
	if k.set != nil {
		b.set = func(h *Host, o plan.Object) error { return k.set(h, o.(T)) }
	}
	if k.del != nil {
		b.del = func(h *Host, o plan.Object) error { return k.del(h, o.(T)) }
	}
	if k.read != nil {
		b.read = func(h *Host, o plan.Object) (plan.Object, error) { return k.read(h, o.(T)) }
	}
	if k.concerned != nil {
		b.concerned = func(m *watch.Matcher, o plan.Object) bool { return k.concerned(m, o.(T)) }
	}
	return reflect.TypeFor[T](), b
}

// kindTable finds the behaviour of an object.
type kindTable struct {
	byType map[reflect.Type]behaviour
	order  []behaviour
}

func kindsByType(all ...interface {
	behaviour() (reflect.Type, behaviour)
}) kindTable {
	t := kindTable{byType: map[reflect.Type]behaviour{}}
	for _, k := range all {
		of, b := k.behaviour()
		t.byType[of] = b
		t.order = append(t.order, b)
	}
	return t
}

// of returns the behaviour of an object. It is empty for objects that the kernel
// does not know, e.g. those of the proxy.
func (t kindTable) of(o plan.Object) behaviour { return t.byType[reflect.TypeOf(o)] }

// group is how the objects of a plan.Group are changed and read.
type group struct {
	// apply carries out the steps.
	apply func(*Host, []plan.Op) error
	// atomic is true if steps that fail change nothing.
	atomic bool
	// read returns the group's objects. If the query has keys, it returns at least
	// those with these keys.
	read func(*Host, query) (plan.Plan, error)
}

// query selects objects of a group.
type query struct {
	// plans may have the objects as they should be, the likely ones first.
	plans []plan.Plan
	// keys are the keys of the selected objects; nil selects all.
	keys map[string]bool
}

var groups = map[plan.Group]group{
	plan.GroupTable: {apply: on(nftOf, (*nft.Handle).Transact), atomic: true,
		read: func(h *Host, _ query) (plan.Plan, error) { return h.nft.ReadTable() }},
	plan.GroupServices: {apply: on(nftOf, (*nft.Handle).Transact), atomic: true,
		read: func(h *Host, q query) (plan.Plan, error) { return h.nft.ReadServices(q.plans...) }},
	plan.GroupEBPF: {apply: on(ebpfOf, (*datapath.Handle).ApplyEBPF),
		read: func(h *Host, q query) (plan.Plan, error) { return h.ebpf.ReadMappings(q.keys) }},
}

// readOrder is the order in which Observe reads the groups.
var readOrder = []plan.Group{plan.GroupTable, plan.GroupServices, plan.GroupEBPF}

// Apply carries out the steps in their order. It stops at the first batch that
// fails (plan.Batches). done is the number of steps that may have changed the host;
// the caller can undo these. If the batch is a single object, the error is a
// *plan.StepError.
func (h *Host) Apply(ops []plan.Op) (done int, err error) {
	if err := h.ebpf.Prepare(ops); err != nil {
		return 0, err
	}
	for batch := range plan.Batches(ops) {
		g, grouped := groups[plan.GroupOf(batch[0].Object)]
		if !grouped {
			g.apply = (*Host).applySingle
		}
		err := g.apply(h, batch)
		if err == nil || !g.atomic {
			done += len(batch)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// applySingle carries out the step on an object that is in no group.
func (h *Host) applySingle(batch []plan.Op) error {
	do := h.Set
	if batch[0].Del {
		do = h.Del
	}
	if err := do(batch[0].Object); err != nil {
		return &plan.StepError{Object: batch[0].Object, Err: err}
	}
	return nil
}

// Set creates or changes one object so that it matches o. Setting an object twice
// is harmless.
func (h *Host) Set(o plan.Object) error {
	set := kinds.of(o).set
	if set == nil {
		return fmt.Errorf("set %s: %T cannot be set by itself", o.Key(), o)
	}
	if err := set(h, o); err != nil {
		return fmt.Errorf("set %s: %w", o.Key(), err)
	}
	return nil
}

// Del removes one object. Removing a missing object succeeds. Sysctls cannot be
// removed: the caller writes their old value back.
func (h *Host) Del(o plan.Object) error {
	del := kinds.of(o).del
	if del == nil {
		return fmt.Errorf("remove %s: %T cannot be removed by itself", o.Key(), o)
	}
	if err := del(h, o); err != nil && !nlutil.Absent(err) {
		return fmt.Errorf("remove %s: %w", o.Key(), err)
	}
	return nil
}

// Polled reports whether a plan has objects whose changes the kernel does not
// report, so that watch.Watcher.Check must be called.
func Polled(p plan.Plan) bool {
	return slices.ContainsFunc(p, func(o plan.Object) bool { return kinds.of(o).polled })
}

// concerns reports whether the events show that the object differs.
func concerns(m *watch.Matcher, o plan.Object) bool {
	concerned := kinds.of(o).concerned
	return concerned != nil && concerned(m, o)
}
