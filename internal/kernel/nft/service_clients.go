package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/plan"

	"github.com/google/nftables"
)

// Theory of operation. If the real server of a persistent client leaves, the
// client must get another one with its next flow, and keep that one. The rule
// that records clients cannot change the real server of an existing element. A
// rule cannot look up a map's result in a second map either, because nft(8)
// cannot read such a rule. So the client's element must be deleted, in the same
// transaction as the real server. Only a list of the map shows which elements
// these are. A packet could bind another client between that list and the
// transaction. To prevent this, unbind first deletes the leaving real server from
// the map of those that clients are bound to: the real server still gets new
// flows, but their clients are not recorded.

// unbound are the elements to delete from the maps of clients, by the names of
// the services.
type unbound map[string][]nftables.SetElement

// bindings returns the services with real servers that the steps remove although
// clients are bound to them, and the elements that record such clients.
func bindings(ops []plan.Op) (services []plan.NFTService, bound map[string][]nftables.SetElement) {
	bound = map[string][]nftables.SetElement{}
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
	return services, bound
}

// unbind stops the recording of clients of real servers that the steps remove,
// and returns the clients that were recorded until then. If steps fail, the
// caller calls bindAgain with those that were not carried out.
func (h *Handle) unbind(ops []plan.Op) (clients unbound, err error) {
	services, bound := bindings(ops)
	if err := h.onShared(bound, (*batch).delElements); err != nil {
		return nil, fmt.Errorf("stop recording clients of real servers that leave: %w", err)
	}
	clients = unbound{}
	for _, s := range services {
		if clients[s.Service], err = h.clientsElsewhere(s); err != nil {
			return nil, errors.Join(err, h.bindAgain(ops))
		}
	}
	return clients, nil
}

// bindAgain restores the recording that unbind has stopped for these steps.
func (h *Handle) bindAgain(ops []plan.Op) error {
	_, bound := bindings(ops)
	return h.onShared(bound, (*batch).addElements)
}

// onShared adds or deletes elements of the shared maps in one transaction.
func (h *Handle) onShared(elements map[string][]nftables.SetElement,
	do func(*batch, *nftables.Set, []nftables.SetElement)) error {
	b := h.begin()
	for _, set := range serviceTable().sets {
		do(b, set, elements[set.Name])
	}
	return b.commit()
}

// clientsElsewhere lists the clients whose real server gets no new flows of the
// service.
func (h *Handle) clientsElsewhere(s plan.NFTService) ([]nftables.SetElement, error) {
	targets := map[string]bool{}
	for at := range s.Targets() {
		if s.ClientsPort() != 0 {
			at = netip.AddrPortFrom(at.Addr(), 0)
		}
		targets[string(encodeReal(at))] = true
	}
	all, err := h.nft.elements(clientsSet(s))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(e nftables.SetElement) bool { return targets[string(e.Val)] }), nil
}

// take returns the step with the clients that it must delete. It removes the
// elements of MapPersistent from the step, because unbind has deleted them.
func (u unbound) take(s serviceStep) serviceStep {
	clients, known := u[s.Service]
	if !known || !s.to.Unbind {
		return s
	}
	s.unbound = clients
	s.to.Del = slices.DeleteFunc(s.to.Del, func(e plan.ServiceEntry) bool { return e.Map == plan.MapPersistent })
	return s
}

// queueUnbound deletes the step's clients. An element may expire before, and
// deleting a missing element would fail the whole transaction. So each one is
// added first, which changes nothing if it exists.
func (b *batch) queueUnbound(s serviceStep) {
	set := clientsSet(s.NFTService)
	b.addElements(set, s.unbound)
	b.delElements(set, s.unbound)
}
