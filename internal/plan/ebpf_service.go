package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// EBPFService is a virtual service in the table of our eBPF programs: one object,
// however many real servers it has.
type EBPFService struct{ Balanced }

// Key implements Object.
func (s EBPFService) Key() string { return "bpf service " + s.Service }

// Add implements Object.
func (s EBPFService) Add() []string {
	return append(s.head(), s.reals(nil)...)
}

// Del implements Object.
func (s EBPFService) Del() []string { return []string{"# ebpf: unserve " + escape.Shell(s.Service)} }

// change implements changer: what is as it was is left out.
func (s EBPFService) change(old Object) []string {
	o, ok := old.(EBPFService)
	if !ok {
		return s.Add()
	}
	var lines []string
	if o.Frontends != s.Frontends || o.Proto != s.Proto || o.Scheduler != s.Scheduler || o.Forward != s.Forward || o.Tunnel != s.Tunnel || o.Persistence != s.Persistence {
		lines = s.head()
	}
	had := o.Backends.List()
	now := s.Backends.List()
	for _, b := range had {
		if !slices.ContainsFunc(now, func(n Backend) bool { return n.At == b.At }) {
			lines = append(lines, fmt.Sprintf("# ebpf: unserve %s to %s", escape.Shell(s.Service), atPort(b.At)))
		}
	}
	return append(lines, s.reals(had)...)
}

// head says what the service is and where.
func (s EBPFService) head() []string {
	var at []string
	for _, f := range s.Frontends.List() {
		at = append(at, f.String())
	}
	line := fmt.Sprintf("# ebpf: serve %s %s at %s scheduler %s forward %s", escape.Shell(s.Service), s.Proto, strings.Join(at, ","), s.Scheduler, s.Forward)
	if s.Tunnel != (model.Tunnel{}) {
		line += " " + s.Tunnel.String()
	}
	if s.Persistence != 0 {
		line += fmt.Sprintf(" persistence %d", int(s.Persistence.Seconds()))
	}
	return []string{line}
}

// reals adds the real servers that were not had.
func (s EBPFService) reals(had []Backend) []string {
	var lines []string
	for _, b := range s.Backends.List() {
		if slices.Contains(had, b) {
			continue
		}
		line := fmt.Sprintf("# ebpf: serve %s to %s weight %d", escape.Shell(s.Service), atPort(b.At), b.Weight)
		if b.Link != "" {
			line += " dev " + escape.Shell(b.Link)
		}
		if b.Local {
			line += " here"
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

// atPort writes an address and a port; port 0 is the one that was dialled.
func atPort(at netip.AddrPort) string {
	if at.Port() == 0 {
		return at.Addr().String()
	}
	return at.String()
}

// bases are the links of the real servers.
func (s EBPFService) bases() []string {
	var links []string
	for _, b := range s.Backends.List() {
		if b.Link != "" {
			links = append(links, end("", b.Link))
		}
	}
	return links
}
