package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/plan"

	"github.com/google/nftables"
)

// Theory of operation. A client whose real server leaves must get another with
// its next flow, and keep that one. The rule that remembers writes no other real
// server into an element that is there, and no rule may look up what it has found
// in a second map (nft(8) cannot read it), so the element has to go, in the same
// transaction as the real server. Only we know of it, from a list of the map. So
// that no packet binds another client between the list and the transaction, the
// real server is first taken from those that clients are bound to: its new flows
// go there as before, and nobody remembers them.

// unbound are elements that have to go from the maps of clients, by the services'
// names.
type unbound map[string][]nftables.SetElement

// unbind has no further client bound to real servers that the steps take out, and
// returns those that are. If the steps fail after all, bindAgain takes it back.
func (h *Host) unbind(ops []plan.Op) (clients unbound, bindAgain func() error, err error) {
	bound := map[string][]nftables.SetElement{}
	var services []plan.NFTService
	for _, op := range ops {
		s, _ := op.Object.(plan.NFTService)
		old, changed := op.Old.(plan.NFTService)
		if op.Del || !changed || s.Damaged || old.Damaged {
			continue
		}
		to := s.From(&old)
		if !to.Unbind {
			continue
		}
		services = append(services, s)
		for _, e := range to.Del {
			if e.Map == plan.MapPersistent {
				set, element := encodeEntry(old, e)
				bound[set] = append(bound[set], element)
			}
		}
	}
	bindAgain = func() error { return h.onShared(bound, (*batch).addElements) }
	if len(services) == 0 {
		return nil, func() error { return nil }, nil
	}
	if err := h.onShared(bound, (*batch).delElements); err != nil {
		return nil, nil, fmt.Errorf("have no client bound to real servers that leave: %w", err)
	}
	clients = unbound{}
	for _, s := range services {
		if clients[s.Service], err = h.clientsElsewhere(s); err != nil {
			return nil, nil, errors.Join(err, bindAgain())
		}
	}
	return clients, bindAgain, nil
}

// onShared adds or deletes elements of the shared maps in a transaction.
func (h *Host) onShared(elements map[string][]nftables.SetElement, do func(*batch, *nftables.Set, []nftables.SetElement)) error {
	b := h.begin()
	for _, set := range sharedSets() {
		do(b, set, elements[set.Name])
	}
	return b.commit()
}

// clientsElsewhere lists the clients that have a real server that gets no new
// flows of the service.
func (h *Host) clientsElsewhere(s plan.NFTService) ([]nftables.SetElement, error) {
	targets := map[string]bool{}
	for at := range s.Targets() {
		if s.ClientsPort() != 0 {
			at = netip.AddrPortFrom(at.Addr(), 0)
		}
		targets[string(encodeReal(at))] = true
	}
	all, err := h.nft.GetSetElements(clientsSet(s))
	if err != nil {
		return nil, fmt.Errorf("read nft map %s: %w", s.Clients(), err)
	}
	return slices.DeleteFunc(all, func(e nftables.SetElement) bool { return targets[string(e.Val)] }), nil
}

// take gives a step the clients that it has to forget. Where they were bound to
// is deleted already.
func (u unbound) take(s serviceStep) serviceStep {
	clients, known := u[s.Service]
	if !known || !s.to.Unbind {
		return s
	}
	s.unbound = clients
	s.to.Del = slices.DeleteFunc(s.to.Del, func(e plan.ServiceEntry) bool { return e.Map == plan.MapPersistent })
	return s
}

// queueUnbound deletes the clients that the service has to forget. They expire by
// themselves, and to delete what is not there fails the whole transaction: so
// each is added before, which does nothing where it is there.
func (b *batch) queueUnbound(s serviceStep) {
	set := clientsSet(s.NFTService)
	b.addElements(set, s.unbound)
	b.delElements(set, s.unbound)
}
