package vip

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// MinHold and MaxHold limit the hold time.
const (
	MinHold = record.MinHold
	MaxHold = record.MaxHold
)

// Wait is for how long a candidate must not have seen a change of the record before it
// claims the address, and how long a promise is kept.
func Wait(hold time.Duration) time.Duration { return hold + hold/10 + 100*time.Millisecond }

// never is a time at which nothing is due.
const never = Time(math.MaxInt64)

// View is what a node sees of the cluster and of itself.
type View struct {
	// Revision is the snapshot's.
	Revision int64
	// Entry is the record's; its Value is nil if the record does not exist.
	Entry kv.Entry
	// Nodes may hold the address.
	Nodes Nodes
	// Drained is true if this node is.
	Drained bool
	// Unable says why this node cannot hold the address, e.g. that the link has no
	// carrier; empty if it can.
	Unable string
}

// Machine is the protocol for one address on one node. Its methods may not be called
// concurrently. Each takes the time, which never goes back, and returns the actions to
// carry out.
type Machine struct {
	self string
	key  string
	env  Env

	view View
	// rec is the newest known record, if revision is not 0. seen is when this node saw it.
	rec      record.Address
	value    []byte
	revision int64
	seen     Time

	// lease is until when the protocol lets this node answer. deadline is that of the
	// fence; 0 if it is closed.
	lease, deadline Time
	// stored is the time at which the last answered put was sent. answered is false until
	// the store has answered the first one.
	stored   Time
	answered bool

	// quiet and promised are times before which this node claims nothing.
	quiet, promised Time
	// retry is the earliest time of the next transaction, and renewal that of the next put.
	retry, renewal Time
	flight         *flight
	// doubtful is the revision on which a claim was sent whose outcome is unknown.
	doubtful int64
	// alsoListed are nodes that puts with an unknown outcome may have listed.
	alsoListed []string
	// memory is that of an earlier process, until the store has answered or the fence is closed.
	memory *Memory
	// rounds are the times at which questions of the last hold time were sent, by their ids, and asked
	// that of the last one.
	rounds map[int64]Time
	asked  Time
	// vows are the times at which the last questions were sent that nodes have answered with
	// a promise.
	vows     map[string]Time
	lastID   int64
	stopping bool
	forced   bool
	restored bool

	wake Time
	out  []Action
}

// flight is a transaction without an answer.
type flight struct {
	id   int64
	kind kind
	sent Time
	on   int64
	// then is the record that it writes, and value its text.
	then  record.Address
	value []byte
}

// kind says what a transaction does.
type kind int

const (
	put kind = iota
	claim
	release
	remove
)

// Env is what a Machine writes into records for people and against coincidence.
type Env struct {
	// Wall returns the time of day.
	Wall func() time.Time
	// Nonce returns a random text.
	Nonce func() string
}

// New returns the machine of an address on the node self. If the fence has a deadline from
// an earlier process, standing is this deadline, else 0.
func New(self string, address netip.Addr, standing Time, env Env) *Machine {
	return &Machine{self: self, key: record.Key(record.Addresses, address.String()), env: env,
		lease: standing, deadline: standing, wake: never, rounds: map[int64]Time{}, vows: map[string]Time{}}
}

// Next returns when Tick must be called.
func (m *Machine) Next() Time { return m.wake }

// Tick carries out what is due.
func (m *Machine) Tick(now Time) []Action { return m.step(now) }

// See takes a snapshot or a change of the node's own state.
func (m *Machine) See(now Time, v View) []Action {
	restored := v.Revision < m.view.Revision || m.restored && !same(v.Entry, m.view.Entry)
	m.view = v
	if restored {
		m.restored, m.revision = false, 0
	}
	switch rec, err := record.Decode[record.Address](v.Entry); {
	case v.Entry.Value != nil && err == nil && rec.Announce == "":
		m.learn(now, rec, v.Entry)
	case v.Revision >= m.revision:
		m.revision = 0
	}
	return m.step(now)
}

// learn takes a record that is newer than the known one.
func (m *Machine) learn(now Time, rec record.Address, e kv.Entry) {
	if e.Revision <= m.revision {
		return
	}
	if m.revision == 0 {
		m.quiet = now + Wait(rec.Hold)
		m.adopt(rec)
	} else if rec.Sequence != m.rec.Sequence {
		m.forced = false // a node that was taken for down has changed the record
	}
	m.rec, m.value, m.revision, m.seen, m.restored = rec, e.Value, e.Revision, now, false
}

// adopt continues to hold an address whose deadline stands after a start.
func (m *Machine) adopt(rec record.Address) {
	if m.deadline == 0 || m.answered {
		return
	}
	m.stored = m.lease - rec.Hold
	if rec.Holder == m.self {
		m.out = append(m.out, Open{m.deadline})
	}
}

// Answered takes the result of a Commit.
func (m *Machine) Answered(now Time, id int64, result kv.Result, err error) []Action {
	f := m.flight
	if f == nil || f.id != id {
		return nil
	}
	m.flight = nil
	switch {
	case err != nil:
		m.retry = max(now, f.sent+f.then.Hold/4)
		if !errors.Is(err, kv.ErrUnavailable) {
			m.unclear(f)
		}
	case result.Committed:
		m.committed(now, f, result.Revision)
	default:
		m.refused(now, f, result)
	}
	return m.step(now)
}

// unclear remembers what a transaction with an unknown outcome may have changed.
func (m *Machine) unclear(f *flight) {
	if f.kind == claim || f.kind == remove {
		m.doubtful = f.on
	}
	m.alsoListed = append(m.alsoListed, f.then.Listed...)
	slices.Sort(m.alsoListed)
	m.alsoListed = slices.Compact(m.alsoListed)
}

func (m *Machine) committed(now Time, f *flight, revision int64) {
	m.answered, m.alsoListed, m.doubtful, m.memory = true, nil, 0, nil
	if f.kind == remove {
		if f.on == m.revision {
			m.revision = 0
		}
		return
	}
	m.learn(now, f.then, kv.Entry{Value: f.value, Revision: revision})
	if f.kind == put || f.kind == claim {
		m.forced = false
		m.stored, m.lease, m.renewal = f.sent, f.sent+f.then.Hold, f.sent+f.then.Hold/4
	}
}

// refused takes the record that made a condition false.
func (m *Machine) refused(now Time, f *flight, result kv.Result) {
	m.retry = max(now, f.sent+f.then.Hold/100)
	i := slices.IndexFunc(result.Current, func(e kv.Entry) bool { return e.Key == m.key })
	if i < 0 {
		m.revision = 0
		return
	}
	current := result.Current[i]
	rec, err := record.Decode[record.Address](current)
	if err == nil && current.Revision <= f.on && same(current, m.view.Entry) {
		m.revision = 0 // a restored store, which the mirror has accepted
	}
	if err == nil && f.on < current.Revision && current.Revision <= m.revision {
		return // a snapshot has shown this record, or a newer one, since
	}
	if err != nil || current.Revision <= m.revision {
		m.restored = current.Revision <= f.on // the store was restored from a snapshot
		m.retry = max(now, f.sent+f.then.Hold/4)
		return
	}
	m.learn(now, rec, current)
}

// same reports whether two entries are the same change.
func same(a, b kv.Entry) bool { return a.Revision == b.Revision && bytes.Equal(a.Value, b.Value) }

// Promised takes the answer of a node to an Ask. The answer to an earlier one counts, too: a promise is
// kept from the time at which the question was sent. Otherwise answers that take longer than the next
// question would never count.
func (m *Machine) Promised(now Time, id int64, node string, p Promise) []Action {
	sent, known := m.rounds[id]
	if !known || !p.Promised {
		return nil
	}
	if m.revision != 0 && m.rec.Holder == m.self && m.deadline != 0 {
		m.vows[node] = max(m.vows[node], sent)
		m.vowed()
	}
	return m.step(now)
}

// vowed extends the lease if all listed nodes have promised, each for its own time.
func (m *Machine) vowed() {
	first := never
	for _, n := range m.listed() {
		sent, promised := m.vows[n]
		if n == m.self {
			continue
		}
		if !promised {
			return
		}
		first = min(first, sent)
	}
	if first != never {
		m.lease = max(m.lease, first+m.rec.Hold)
	}
}

// Asked answers the holder's question for a promise.
func (m *Machine) Asked(now Time, r Request) Promise {
	switch {
	case r.Hold < MinHold || r.Hold > MaxHold:
		return Promise{Reason: "the hold time is out of range"}
	case now < m.deadline:
		return Promise{Reason: "this node holds the address"}
	case m.flight != nil || m.revision != 0 && m.doubtful == m.revision:
		return Promise{Reason: "this node has a claim in flight"}
	case m.revision != 0 && m.rec.Holder != r.Holder && m.rec.Epoch > r.Epoch:
		return Promise{Reason: "another node has claimed the address"}
	}
	m.promised = max(m.promised, now+Wait(r.Hold))
	return Promise{Promised: true}
}

// Force makes this node claim the address although the record does not list it, unless another node
// changes the record before.
func (m *Machine) Force(now Time) []Action {
	m.forced = true
	return m.step(now)
}

// Stop makes this node give up the address. Released reports when that is done.
func (m *Machine) Stop(now Time) []Action {
	m.stopping = true
	return m.step(now)
}

// Released reports whether a node that stops has nothing more to do.
func (m *Machine) Released() bool {
	return m.deadline == 0 && m.flight == nil && (m.revision == 0 || m.rec.Holder != m.self)
}

// step decides what to do now, and when to decide again.
func (m *Machine) step(now Time) []Action {
	m.wake = never
	if now >= max(m.deadline, m.lease) {
		m.shut("the deadline has passed")
	}
	switch {
	case m.revision == 0:
		if m.view.Revision != 0 {
			m.shut("the address was removed")
		}
	case m.rec.Holder == m.self:
		m.hold(now)
	default:
		m.shut("node " + m.rec.Holder + " holds the address")
		m.compete(now)
	}
	if m.deadline != 0 {
		m.due(now, m.deadline)
	}
	out := m.out
	m.out = nil
	return out
}

// due reports whether a time has come. If not, the machine wakes up then.
func (m *Machine) due(now, at Time) bool {
	if now < at {
		m.wake = min(m.wake, at)
	}
	return now >= at
}

// shut closes the fence and gives up the lease. Promises that arrive later are not for the next one.
func (m *Machine) shut(reason string) {
	m.lease, m.asked, m.memory = 0, 0, nil
	clear(m.rounds)
	clear(m.vows)
	if m.deadline != 0 {
		m.deadline = 0
		m.out = append(m.out, Close{reason})
	}
}

// commit sends a transaction that replaces the known record by then, or deletes it.
func (m *Machine) commit(now Time, k kind, then record.Address) {
	m.lastID++
	m.flight = &flight{id: m.lastID, kind: k, sent: now, on: m.revision, then: then}
	if k != remove {
		m.flight.then.Nonce = m.env.Nonce()
		m.flight.value = record.Encode(m.flight.then)
	}
	m.out = append(m.out, Commit{ID: m.lastID, Timeout: m.rec.Hold / 2, Txn: kv.Txn{
		If:   []kv.Condition{{Key: m.key, Revision: m.revision, Value: m.value}},
		Then: []kv.Change{{Key: m.key, Value: m.flight.value}}}})
}
