package vip

import "slices"

// compete decides for a node that is not the holder.
func (m *Machine) compete(now Time) {
	if m.stopping || m.flight != nil || !m.due(now, max(m.quiet, m.promised, m.retry)) {
		return
	}
	if m.rec.Holder != "" && !m.forced && !slices.Contains(m.rec.Listed, m.self) {
		return
	}
	if m.rec.Removed {
		if m.due(now, m.free()) {
			m.commit(now, remove, m.rec)
		}
		return
	}
	if m.Barred() != "" || !m.due(now, m.free()+m.delay()) {
		return
	}
	then := m.rec
	then.Holder, then.Target, then.Listed = m.self, "", m.view.Nodes.Candidates
	then.Epoch++
	then.Sequence++
	then.Since = m.env.Wall().UTC()
	m.commit(now, claim, then)
}

// Barred returns why this node does not claim the address even if no node holds it, or an
// empty text.
func (m *Machine) Barred() string {
	switch {
	case m.view.Unable != "":
		return m.view.Unable
	case !slices.Contains(m.view.Nodes.Candidates, m.self):
		return "the node is not a candidate"
	case m.view.Drained && len(m.view.Nodes.Able) > 0:
		return "the node is drained"
	}
	return ""
}

// free returns when no other node can have the address any more.
func (m *Machine) free() Time {
	if m.rec.Holder == "" {
		return m.seen
	}
	return m.seen + Wait(m.rec.Hold)
}

// delay returns for how long this node lets preferred nodes go first.
func (m *Machine) delay() Time {
	step := m.rec.Hold / 20
	rank := slices.Index(m.view.Nodes.Able, m.self)
	if rank < 0 {
		rank = len(m.view.Nodes.Able)
	}
	switch {
	case m.rec.Target == m.self:
		return 0
	case m.rec.Target != "":
		return m.rec.Hold/2 + Time(rank)*step
	}
	return Time(rank) * step
}
