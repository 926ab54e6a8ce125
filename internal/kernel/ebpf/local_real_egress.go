package ebpf

import (
	"errors"
	"maps"

	"fairlead/internal/kernel/bpf"
)

// LocalRealEgress is the program at the egress of links that rewrites replies of real
// servers that are the host itself (bpf/include/local_real.h).
const LocalRealEgress = bpf.FairleadProgFlLocalEgress

// AttachLocalRealEgress attaches the program to every interface that has a program at
// its ingress, now or later. An interface that has just disappeared is no error. The
// calling thread must be in the host's network namespace.
func (p *Datapath) AttachLocalRealEgress() error {
	p.localRealEgress = true
	links, err := p.withIngress()
	errs := []error{err}
	for ifindex := range links {
		err := p.attachLink(LocalRealEgress, ifindex, isBareAt(ifindex))
		if err != nil && !HasLink(ifindex) {
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// DetachLocalRealEgress detaches the program from all interfaces. The calling thread
// must be in the host's network namespace.
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

// adoptLocalRealEgress detects whether an earlier process has attached the program.
func (p *Datapath) adoptLocalRealEgress() error {
	if !p.balancing {
		return nil
	}
	found, err := p.LinksOf(LocalRealEgress)
	p.localRealEgress = len(found) > 0
	return err
}
