package vip

import (
	"slices"

	"fairlead/internal/cluster/kv"
)

// Memory is what the next process of a holder must know besides the deadline. Its mirror can be
// older than the record by which it holds the address, and does not say which nodes a transaction
// without an answer has listed.
type Memory struct {
	// Entry is the newest known record.
	Entry kv.Entry `json:"entry"`
	// Epoch is that of the record.
	Epoch int64 `json:"epoch"`
	// Listed are the nodes that may be listed, sorted.
	Listed []string `json:"listed"`
}

// Memory returns what the next process must know, or nil if this node does not hold the address.
// It must be stored before the actions that were returned before are carried out.
func (m *Machine) Memory() *Memory {
	if m.revision == 0 || m.rec.Holder != m.self || m.deadline == 0 {
		return nil
	}
	listed := m.listed()
	return &Memory{kv.Entry{Key: m.key, Value: m.value, Revision: m.revision}, m.rec.Epoch, listed}
}

// Same reports whether another memory serves as well: only the sequence of its record may differ.
func (m *Memory) Same(other *Memory) bool {
	if m == nil || other == nil {
		return m == other
	}
	return m.Epoch == other.Epoch && slices.Equal(m.Listed, other.Listed)
}

// Remember makes a new Machine continue with the memory of an earlier process. It must be called
// before See.
func (m *Machine) Remember(memory *Memory) {
	if m.deadline != 0 && memory != nil {
		m.memory, m.alsoListed = memory, memory.Listed
	}
}

// Complete returns a view with the remembered record, if its snapshot is older than that.
func (m *Machine) Complete(v View) View {
	if m.memory != nil && v.Revision < m.memory.Entry.Revision {
		v.Entry = m.memory.Entry
	}
	return v
}

// listed returns the nodes that may be listed in the store, sorted.
func (m *Machine) listed() []string {
	all := slices.Concat(m.rec.Listed, m.alsoListed)
	if m.flight != nil {
		all = append(all, m.flight.then.Listed...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
