package ebpf

import (
	"errors"
	"maps"

	"fairlead/internal/kernel/bpf"
)

// LocalRealEgress is the program for the egress of links (bpf/include/local_real.h): there are
// real servers that are the host itself.
const LocalRealEgress = bpf.FairleadProgFlLocalEgress

// AttachLocalRealEgress puts the program at every interface that has one at its ingress,
// and at those that get one from now on; one that has just gone is none. The
// calling thread must be in the host's network namespace.
func (p *Datapath) AttachLocalRealEgress() error {
	p.localRealEgress = true
	links, err := p.withIngress()
	errs := []error{err}
	for ifindex := range links {
		err := p.attachLink(LocalRealEgress, ifindex, isBare(ifindex))
		if err != nil && !HasLink(ifindex) {
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// DetachLocalRealEgress takes the program from wherever it is. The calling thread must be
// in the host's network namespace.
func (p *Datapath) DetachLocalRealEgress() error {
	p.localRealEgress = false
	found, err := p.LinksOf(LocalRealEgress)
	errs := []error{err}
	for ifindex := range found {
		errs = append(errs, p.detachLink(LocalRealEgress, ifindex))
	}
	return errors.Join(errs...)
}

// withIngress returns the interfaces that have a program at their ingress.
func (p *Datapath) withIngress() (map[int]bool, error) {
	all := map[int]bool{}
	for _, program := range ingress {
		found, err := p.LinksOf(program)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, found)
	}
	return all, nil
}

// adoptLocalRealEgress finds out whether an earlier process has attached the program.
func (p *Datapath) adoptLocalRealEgress() error {
	if !p.balancing {
		return nil
	}
	found, err := p.LinksOf(LocalRealEgress)
	p.localRealEgress = len(found) > 0
	return err
}
