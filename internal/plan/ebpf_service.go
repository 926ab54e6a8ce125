package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// EBPFService is a virtual service in the table of the eBPF programs. It is one
// object, for any number of real servers.
type EBPFService struct{ Balanced }

func (s EBPFService) equal(o Object) bool {
	other, ok := o.(EBPFService)
	return ok && s.Balanced.equal(other.Balanced)
}

// Key implements Object.
func (s EBPFService) Key() string { return "bpf service " + s.Service }

func (EBPFService) group() Group { return GroupEBPF }

// Add implements Object.
func (s EBPFService) Add() []string {
	return append(append(s.head(), s.reals(nil)...), s.ring(nil)...)
}

// Del implements Object.
func (s EBPFService) Del() []string { return []string{"# ebpf: unserve " + escape.Shell(s.Service)} }

// change implements changer. It omits settings and real servers that did not
// change.
func (s EBPFService) change(old Object) []string {
	o, ok := old.(EBPFService)
	if !ok {
		return s.Add()
	}
	var lines []string
	if !same(o.Frontends, s.Frontends) || o.settings() != s.settings() {
		lines = s.head()
	}
	had := o.Backends
	now := s.Backends
	for _, b := range had {
		if !slices.ContainsFunc(now, func(n Backend) bool { return n.At == b.At }) {
			lines = append(lines, fmt.Sprintf("# ebpf: unserve %s to %s", escape.Shell(s.Service), atPort(b.At)))
		}
	}
	return append(append(lines, s.reals(had)...), s.ring(&o)...)
}

// head returns the line with the service's frontends and settings.
func (s EBPFService) head() []string {
	var at []string
	for _, f := range s.Frontends {
		at = append(at, f.String())
	}
	line := fmt.Sprintf("# ebpf: serve %s %s at %s scheduler %s forward %s", escape.Shell(s.Service), s.Proto,
		strings.Join(at, ","), s.Scheduler, s.Forward)
	if s.Tunnel != (model.Tunnel{}) {
		line += " " + s.Tunnel.String()
	}
	if s.Persistence != 0 {
		line += fmt.Sprintf(" persistence %d", int(s.Persistence.Seconds()))
	}
	return []string{line}
}

// reals returns the lines that add the real servers that are not in had.
func (s EBPFService) reals(had []Backend) []string {
	var lines []string
	for _, b := range s.Backends {
		if slices.Contains(had, b) {
			continue
		}
		line := fmt.Sprintf("# ebpf: serve %s to %s weight %d", escape.Shell(s.Service), atPort(b.At), b.Weight)
		if b.Link != "" {
			line += " dev " + escape.Shell(b.Link)
		}
		if b.Local {
			line += " local"
		}
		if b.Masquerade {
			line += " masquerade"
		}
		if b.Tunnel {
			line += " tunnel"
		}
		if b.Draining {
			line += " draining"
		}
		lines = append(lines, line)
	}
	return lines
}

// ring returns the line about the ring if it differs from the old service's: its length,
// and how many of its entries another real server has now.
func (s EBPFService) ring(old *EBPFService) []string {
	if old == nil && len(s.Ring) == 0 || old != nil && same(old.owners(), s.owners()) {
		return nil
	}
	line := fmt.Sprintf("# ebpf: serve %s ring %d", escape.Shell(s.Service), len(s.Ring))
	if old != nil && len(old.Ring) == len(s.Ring) {
		moved, owners := 0, s.owners()
		for i, was := range old.owners() {
			if was != owners[i] {
				moved++
			}
		}
		line += fmt.Sprintf(" changed %d", moved)
	}
	return []string{line}
}

// owners returns the real servers in the order of the ring. What another program wrote
// into the kernel's maps may be wrong.
func (s EBPFService) owners() []netip.AddrPort {
	owners := make([]netip.AddrPort, len(s.Ring))
	for i, index := range s.Ring {
		if int(index) < len(s.Backends) {
			owners[i] = s.Backends[index].At
		}
	}
	return owners
}

// atPort writes an address and a port. It omits port 0, which keeps the client's
// port.
func atPort(at netip.AddrPort) string {
	if at.Port() == 0 {
		return at.Addr().String()
	}
	return at.String()
}

// bases returns the links of the real servers.
func (s EBPFService) bases() []string {
	var links []string
	for _, b := range s.Backends {
		if b.Link != "" {
			links = append(links, end("", b.Link))
		}
	}
	return links
}
