package steer

import (
	"errors"
	"maps"
)

// Homeward is the program for the egress of links (bpf/include/here.h): there are
// real servers that are the host itself.
const Homeward = "homeward"

// AttachHomeward puts the program at every interface that has one at its ingress,
// and at those that get one from now on; one that has just gone is none. The
// calling thread must be in the host's network namespace.
func (p *Plane) AttachHomeward() error {
	p.homeward = true
	links, err := p.withIngress()
	errs := []error{err}
	for ifindex := range links {
		err := p.attachLink(Homeward, ifindex, isBare(ifindex))
		if err != nil && !Here(ifindex) {
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// DetachHomeward takes the program from wherever it is. The calling thread must be
// in the host's network namespace.
func (p *Plane) DetachHomeward() error {
	p.homeward = false
	found, err := p.LinksOf(Homeward)
	errs := []error{err}
	for ifindex := range found {
		errs = append(errs, p.detachLink(Homeward, ifindex))
	}
	return errors.Join(errs...)
}

// withIngress returns the interfaces that have a program at their ingress.
func (p *Plane) withIngress() (map[int]bool, error) {
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

// adoptHomeward finds out whether an earlier process has attached the program.
func (p *Plane) adoptHomeward() error {
	if !p.balancing {
		return nil
	}
	found, err := p.LinksOf(Homeward)
	p.homeward = len(found) > 0
	return err
}
