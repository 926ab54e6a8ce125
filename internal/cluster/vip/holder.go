package vip

import (
	"maps"
	"slices"
)

// hold decides for the node that the record names as the holder.
func (m *Machine) hold(now Time) {
	if reason := m.leaving(); reason != "" {
		m.shut(reason)
		m.giveUp(now)
		return
	}
	m.open(now)
	m.put(now)
	m.ask(now)
}

// leaving returns why the holder must give up the address, or an empty text.
func (m *Machine) leaving() string {
	other := slices.ContainsFunc(m.view.Nodes.Able, func(n string) bool { return n != m.self })
	switch {
	case m.rec.Removed:
		return "the address is being removed"
	case m.stopping:
		return "the daemon stops"
	case m.view.Unable != "":
		return m.view.Unable
	case m.moving():
		return "the address moves to node " + m.rec.Target
	case m.view.Drained && other:
		return "the node is drained"
	case !slices.Contains(m.view.Nodes.Candidates, m.self):
		return "the node is not a candidate"
	}
	return ""
}

// moving reports whether the address shall move to another node that can take it.
func (m *Machine) moving() bool {
	return m.rec.Target != m.self && slices.Contains(m.view.Nodes.Able, m.rec.Target)
}

// giveUp deletes the holder from the record, or the record if that is wanted. Its fence is
// closed.
func (m *Machine) giveUp(now Time) {
	if m.flight != nil || !m.due(now, m.retry) {
		return
	}
	then := m.rec
	then.Holder, then.Sequence = "", m.rec.Sequence+1
	if m.rec.Removed {
		m.commit(now, remove, then)
		return
	}
	m.commit(now, release, then)
}

// open opens the fence until the end of the lease.
func (m *Machine) open(now Time) {
	switch {
	case m.lease <= max(now, m.deadline):
	case m.deadline == 0:
		m.deadline = m.lease
		m.out = append(m.out, Open{m.deadline})
	default:
		m.deadline = m.lease
		m.out = append(m.out, Extend{m.deadline})
	}
}

// put changes the record's sequence. A holder whose fence is closed, e.g. after a start,
// claims the address anew with it, so it waits like a candidate: as long as the record changes,
// another host acts as the same node, of which this one is a copy.
func (m *Machine) put(now Time) {
	if m.flight != nil {
		return
	}
	if m.deadline == 0 && !m.due(now, max(m.quiet, m.promised, m.free())) || !m.due(now, max(m.retry, m.renewal)) {
		return
	}
	then := m.rec
	then.Sequence++
	then.Target = ""
	then.Listed = m.view.Nodes.Candidates
	k := put
	if m.deadline == 0 {
		k = claim
	}
	m.commit(now, k, then)
}

// ask asks the listed nodes for their promise if the store is silent.
func (m *Machine) ask(now Time) {
	if m.deadline == 0 || !m.answered && m.memory == nil || !m.due(now, m.stored+m.rec.Hold/2) {
		return
	}
	if len(m.rounds) > 0 && !m.due(now, m.asked+m.rec.Hold/4) {
		return
	}
	listed := slices.DeleteFunc(m.listed(), func(n string) bool { return n == m.self })
	m.lastID++
	maps.DeleteFunc(m.rounds, func(_ int64, sent Time) bool { return sent+m.rec.Hold <= now })
	m.rounds[m.lastID], m.asked = now, now
	m.due(now, now+m.rec.Hold/4)
	if len(listed) == 0 {
		m.lease = max(m.lease, now+m.rec.Hold)
		m.open(now)
		return
	}
	m.out = append(m.out, Ask{Round: m.lastID, Nodes: listed, Timeout: m.rec.Hold / 2, Request: Request{
		Address: m.rec.Prefix.Addr().String(), Holder: m.self, Epoch: m.rec.Epoch, Hold: m.rec.Hold}})
}
