package wording

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/probe"
)

// Place returns the sandbox and the link of a hop.
func Place(h flow.Hop) string { return escape.Line(strings.TrimSpace(h.Where + " " + h.Link)) }

// Remarks returns the lines below the verdict.
func Remarks(e flow.Explanation) []string {
	var all []string
	if e.Uncertain && e.Probe == nil {
		all = append(all, "Some rules contain parts that explain does not understand: use --probe to be certain.")
	}
	for _, c := range e.Caveats {
		all = append(all, "Not certain: "+Sentence(e, c))
	}
	for _, n := range e.Notes {
		all = append(all, "Not examined: "+Sentence(e, n))
	}
	if p := e.Probe; p != nil {
		all = append(all, fmt.Sprintf("Probe: %s: %s.", p.Sent, p.Result))
		if p.Result == probe.NotSent && !p.Agrees {
			all = append(all, "No packet of this flow was seen.")
		}
		if p.Dropped != "" {
			all = append(all, "It was dropped in "+p.Dropped+".")
		}
		if p.Agrees {
			all = append(all, "The probe agrees.")
		}
	}
	return all
}

// Endpoints returns the ends of a flow.
func Endpoints(from netip.Addr, to netip.AddrPort) string {
	if !from.IsValid() {
		return "to " + to.String()
	}
	return fmt.Sprintf("%s -> %s", from, to)
}

// Sentence returns s with a capital at its beginning, unless s begins with the
// name of a hop, and with a full stop at its end.
func Sentence(e flow.Explanation, s string) string {
	if s == "" {
		return s
	}
	first, _, _ := strings.Cut(s, " ")
	s = strings.TrimSuffix(s, ".") + "."
	if slices.ContainsFunc(e.Hops, func(h flow.Hop) bool {
		return first == h.Link || first == h.Where &&
			h.Where != "host"
	}) {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// FurtherLines returns the lines of the part on another node.
func FurtherLines(p *api.FlowPart) []string {
	switch {
	case p == nil:
		return nil
	case p.Problem != "":
		return []string{"", "The path on node " + p.Node + " is not known: " + p.Problem}
	}
	lines := []string{"", "Node " + p.Node + " reports:", ""}
	for i, s := range p.Steps {
		lines = append(lines, fmt.Sprintf("%2d  %s  %s", i+1, escape.Line(strings.TrimSpace(s.Where+" "+s.Link)), s.What))
		program := ""
		if s.Program != "" {
			program = "eBPF program " + s.Program
		}
		for _, more := range []string{s.By, program, s.Why} {
			if more != "" {
				lines = append(lines, "        "+more)
			}
		}
	}
	lines = append(lines, "", p.Node+": "+p.Verdict)
	for _, c := range p.Caveats {
		lines = append(lines, "Not certain: "+c)
	}
	return lines
}

// Candidates returns one line per real server that can get a flow.
func Candidates(b *flow.Balance) []string {
	if b == nil {
		return nil
	}
	lines := make([]string, len(b.Candidates))
	width := 0
	name := func(c flow.Candidate) string {
		if c.Endpoint != "" {
			return fmt.Sprintf("%s (%s)", c.At, c.Endpoint)
		}
		return c.At.String()
	}
	for _, c := range b.Candidates {
		width = max(width, len(name(c)))
	}
	for i, c := range b.Candidates {
		mark := "  "
		if c.Taken {
			mark = "->"
		}
		lines[i] = fmt.Sprintf("%s %-*s  weight %d", mark, width, name(c), c.Weight)
		if state := cmp.Or(c.State, "-"); state != "-" {
			lines[i] += ", " + state
		}
		if c.Cause != "" {
			lines[i] += ": " + c.Cause
		}
	}
	return lines
}
