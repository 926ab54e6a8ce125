package flow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

// promises knows the publishes of the host, and what their modes promise to the
// client.
type promises struct {
	ports  Ports
	proto  model.Proto
	client client
}

// published returns the publish of a port of the host.
func (m *promises) published(at netip.AddrPort) (Published, bool) {
	all := m.ports.Published()
	i := slices.IndexFunc(all, func(p Published) bool { return p.covers(m.proto, at) })
	if i < 0 {
		return Published{}, false
	}
	return all[i], true
}

// promised returns what the publish mode of the port promises.
func (m *promises) promised(at netip.AddrPort) string {
	p, ok := m.published(at)
	if !ok {
		return ""
	}
	return m.quotes(p.Via, p.Driver, p.Away, at)
}

// quotes returns what a publish mode with a driver promises to this kind of
// client.
func (m *promises) quotes(via model.Via, d model.Driver, away bool, at netip.AddrPort) string {
	mode, ok := paths.Mode(via)
	if !ok {
		return ""
	}
	set := paths.PromisesTo(mode, d, &plan.Attachment{Away: away})
	if set == nil {
		return ""
	}
	sources := map[client]promise.Question{lan: promise.LANSource, local: promise.HostSource, peer: promise.PeerSource}
	questions := []promise.Question{sources[m.client]}
	switch {
	case m.client == lan:
		questions = append(questions, promise.InputFirewall, promise.ForwardFirewall)
	case at.Addr() == netip.IPv6Loopback():
		questions = append(questions, promise.Loopback6)
	case at.Addr().IsLoopback():
		questions = append(questions, promise.Loopback4)
	}
	quotes := []string{fmt.Sprintf("%s+%s", d, via)}
	for _, q := range questions {
		quotes = append(quotes, quote(q, set[q]))
	}
	return strings.Join(quotes, "; ")
}

// quote writes a promise in the format of `fairlead paths`.
func quote(q promise.Question, a promise.Answer) string {
	text := fmt.Sprintf("%s: no", q)
	if a.Kept {
		text = fmt.Sprintf("%s: yes", q)
	}
	if a.How != "" {
		text += " (" + a.How + ")"
	}
	return text
}
