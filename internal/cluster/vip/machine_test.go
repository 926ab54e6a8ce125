package vip

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

const hold = time.Second

// at returns a view with a record at a revision.
func at(revision int64, rec record.Address) View {
	rec.Prefix, rec.Hold, rec.Listed = address, hold, []string{"a", "b"}
	return View{Revision: revision, Nodes: Nodes{Candidates: rec.Listed, Able: rec.Listed},
		Entry: kv.Entry{Key: "addrs/192.0.2.10", Value: record.Encode(rec), Revision: revision}}
}

func newMachine(standing Time) *Machine {
	nonces := 0
	return New("b", address.Addr(), standing, Env{Wall: time.Now, Nonce: func() string {
		nonces++
		return fmt.Sprint(nonces)
	}})
}

// only returns the single action, and fails the test if it has another type.
func only[T Action](t *testing.T, actions []Action) T {
	t.Helper()
	if len(actions) == 1 {
		if a, ok := actions[0].(T); ok {
			return a
		}
	}
	var want T
	t.Fatalf("the actions are %v, want one %T", actions, want)
	return want
}

// claiming returns a machine that has just sent a claim, because node a is silent.
func claiming(t *testing.T) (*Machine, Time, Commit) {
	t.Helper()
	m := newMachine(0)
	if got := m.See(0, at(7, record.Address{Holder: "a", Epoch: 1})); len(got) > 0 {
		t.Fatalf("a candidate does %v at the first snapshot", got)
	}
	if got := m.Tick(Wait(hold) - 1); len(got) > 0 {
		t.Fatalf("a candidate does %v before the holder's deadline must have passed", got)
	}
	now := Wait(hold) + hold/10
	return m, now, only[Commit](t, m.Tick(now))
}

var question = Request{Address: "192.0.2.10", Holder: "a", Epoch: 1, Hold: hold}

// TestClaimInFlightRefusesPromise: a claim that is under way may be committed at any time,
// also when its answer was lost.
func TestClaimInFlightRefusesPromise(t *testing.T) {
	for _, outcome := range []error{kv.ErrUnknown, kv.ErrOtherEtcd} {
		m, now, c := claiming(t)
		if p := m.Asked(now, question); p.Promised {
			t.Error("a node with a claim in flight promises not to claim")
		}
		for _, a := range m.Answered(now+1, c.ID, kv.Result{}, outcome) {
			if open, ok := a.(Open); ok {
				t.Errorf("after %q a node does %v", outcome, open)
			}
		}
		if p := m.Asked(now+2, question); p.Promised {
			t.Errorf("a node whose claim ended with %q promises not to claim", outcome)
		}
		m.See(now+3, at(8, record.Address{Holder: "a", Epoch: 1, Sequence: 1}))
		if p := m.Asked(now+4, question); !p.Promised {
			t.Errorf("a node whose claim has failed refuses: %s", p.Reason)
		}
	}
}

// TestFirstViewWaits: a node that has just started does not know whether an earlier holder
// still answers, even if the record names none.
func TestFirstViewWaits(t *testing.T) {
	for _, holder := range []string{"", "b"} {
		m := newMachine(0)
		first := at(7, record.Address{Holder: holder})
		if got := m.See(0, first); len(got) > 0 || m.Next() < Wait(hold) {
			t.Errorf("holder %q: a node that has started does %v, and the next step at %v", holder, got, m.Next())
		}
	}
}

// TestCopyOfHolderWaits: while the record of an address changes, another host acts as the node that holds it. This one,
// whose fence is closed, has a copy of that node's state, and may not answer too.
func TestCopyOfHolderWaits(t *testing.T) {
	m := newMachine(0)
	now := Time(0)
	for sequence := range int64(20) {
		now += hold / 4
		got := append(m.See(now, at(7+sequence, record.Address{Holder: "b", Sequence: sequence})), m.Tick(now)...)
		if len(got) > 0 {
			t.Fatalf("a copy of the holder does %v after %v", got, now)
		}
	}
	if got := m.Tick(now + Wait(hold) - 1); len(got) > 0 {
		t.Errorf("a copy of the holder does %v before the holder's deadline must have passed", got)
	}
	only[Commit](t, m.Tick(now+Wait(hold)))
}

// TestLateAnswerExtendsFromSending: the deadline counts from the time of sending.
func TestLateAnswerExtendsFromSending(t *testing.T) {
	m, now, c := claiming(t)
	got := m.Answered(now+hold/2, c.ID, kv.Result{Committed: true, Revision: 9}, nil)
	if open, ok := got[0].(Open); !ok || open.Deadline != now+hold {
		t.Errorf("after a late answer the node does %v, want the deadline %v", got, now+hold)
	}
	m, now, c = claiming(t)
	for _, a := range m.Answered(now+hold, c.ID, kv.Result{Committed: true, Revision: 9}, nil) {
		if _, ok := a.(Open); ok {
			t.Error("an answer that comes after the deadline opens the fence")
		}
	}
}

// TestStandingDeadlineContinues: a daemon that was restarted keeps an address until the
// deadline, and closes the fence if the record names another holder.
func TestStandingDeadlineContinues(t *testing.T) {
	m := newMachine(hold / 2)
	got := m.See(0, at(7, record.Address{Holder: "b", Epoch: 1}))
	if len(got) != 2 || got[0] != (Open{hold / 2}) {
		t.Errorf("the holder does %v after a restart, want to stay open, and a put", got)
	}
	m = newMachine(hold / 2)
	only[Close](t, m.See(0, at(7, record.Address{Holder: "a", Epoch: 2})))
}

// TestRestartedHolderAsks: a holder that was restarted without the store, with a mirror that is
// older than its record, keeps the address by the promises of all nodes that may be listed.
func TestRestartedHolderAsks(t *testing.T) {
	m, now, c := claiming(t)
	m.Answered(now, c.ID, kv.Result{Committed: true, Revision: 9}, nil)
	view := at(9, record.Address{})
	view.Nodes.Candidates = []string{"a", "b", "c"}
	for _, a := range m.See(now+1, View{Revision: 9, Entry: kv.Entry{Value: m.value, Revision: 9}, Nodes: view.Nodes}) {
		t.Errorf("the holder does %v", a)
	}
	only[Commit](t, m.Tick(now+hold/4)) // it lists node c, and is not answered
	memory, standing := m.Memory(), m.deadline
	m = newMachine(standing)
	m.Remember(memory)
	now += hold / 4
	m.See(now+1, m.Complete(View{Revision: 3, Nodes: view.Nodes}))
	now += hold / 2
	var asked *Ask
	for _, a := range m.Tick(now) {
		if a, is := a.(Ask); is {
			asked = &a
		}
	}
	if asked == nil || strings.Join(asked.Nodes, " ") != "a c" {
		t.Fatalf("the holder asks %+v, want the nodes a and c", asked)
	}
	m.Promised(now, asked.Round, "a", Promise{Promised: true})
	got := m.Promised(now, asked.Round, "c", Promise{Promised: true})
	if only[Extend](t, got).Deadline != now+hold {
		t.Errorf("after all promises the holder does %v", got)
	}
}

// TestSlowPromises: promises that arrive after the next question keep the address. Those that arrive after the
// deadline do not open it again.
func TestSlowPromises(t *testing.T) {
	m, now, c := claiming(t)
	m.Answered(now, c.ID, kv.Result{Committed: true, Revision: 9}, nil)
	const latency = 2 * hold / 5
	type answer struct {
		at    Time
		round int64
	}
	var late []answer
	end, deadline := now+5*hold, now+hold
	for ; now < end; now += hold / 100 {
		actions := m.Tick(now)
		for len(late) > 0 && late[0].at <= now {
			actions = append(actions, m.Promised(now, late[0].round, "a", Promise{Promised: true})...)
			late = late[1:]
		}
		for _, a := range actions {
			switch a := a.(type) {
			case Ask:
				late = append(late, answer{now + latency, a.Round})
			case Extend:
				if a.Deadline > now-latency+hold+hold/100 {
					t.Fatalf("at %v, a promise extends the deadline to %v: it was asked for %v ago", now, a.Deadline, latency)
				}
				deadline = a.Deadline
			}
		}
		if now >= deadline {
			t.Fatalf("at %v, the deadline has passed although node a promises within %v", now, latency)
		}
	}
	round := late[0].round
	if got := only[Close](t, m.Tick(deadline)); got.Reason == "" {
		t.Error("there is no reason")
	}
	if got := m.Promised(deadline, round, "a", Promise{Promised: true}); len(got) > 0 {
		t.Errorf("a promise after the deadline makes the node do %v", got)
	}
}

// TestLostAnswersList: however many answers are lost, a node is remembered once.
func TestLostAnswersList(t *testing.T) {
	m, now, c := claiming(t)
	m.Answered(now, c.ID, kv.Result{Committed: true, Revision: 9}, nil)
	for range 100 {
		now += hold / 4
		for _, a := range m.Tick(now) {
			switch a := a.(type) {
			case Ask:
				m.Promised(now, a.Round, "a", Promise{Promised: true})
			case Commit:
				m.Answered(now, a.ID, kv.Result{}, kv.ErrUnknown)
			}
		}
	}
	if len(m.alsoListed) != 2 {
		t.Errorf("the node remembers %d names of listed nodes, want those of 2", len(m.alsoListed))
	}
}

// TestMoveDuringPut: the change that moves an address outruns a put, and the snapshot with it arrives before
// the answer to the put. The holder releases the address without another wait.
func TestMoveDuringPut(t *testing.T) {
	m, now, c := claiming(t)
	m.Answered(now, c.ID, kv.Result{Committed: true, Revision: 9}, nil)
	now += hold / 4
	sent := only[Commit](t, m.Tick(now))
	moved := at(10, record.Address{Holder: "b", Epoch: 2, Target: "a"})
	only[Close](t, m.See(now+1, moved))
	now += hold / 50
	only[Commit](t, m.Answered(now, sent.ID, kv.Result{Revision: 10, Current: []kv.Entry{moved.Entry}}, nil))
}

// TestMoveClosesFirst: a planned move closes the fence before the record changes, and the
// target claims at once.
func TestMoveClosesFirst(t *testing.T) {
	m, now, c := claiming(t)
	m.Answered(now, c.ID, kv.Result{Committed: true, Revision: 9}, nil)
	got := m.See(now+1, at(10, record.Address{Holder: "b", Epoch: 2, Target: "a"}))
	if _, closed := got[0].(Close); !closed || len(got) != 2 {
		t.Errorf("the holder does %v when the address moves, want to close the fence, then to release", got)
	}
	m = newMachine(0)
	m.See(0, at(7, record.Address{Holder: "a", Epoch: 1}))
	only[Commit](t, m.See(2*hold, at(8, record.Address{Epoch: 1, Target: "b"})))
}

// TestForcedClaimEnds: an administrator has said that the holder is down. If the holder changes the record
// afterwards, that was wrong, and the node must not claim although the record does not list it.
func TestForcedClaimEnds(t *testing.T) {
	unlisted := func(revision, sequence int64) View {
		rec := record.Address{Prefix: address, Hold: hold, Holder: "a", Epoch: 1, Sequence: sequence,
			Listed: []string{"a"}}
		v := at(revision, rec)
		v.Entry.Value = record.Encode(rec)
		return v
	}
	late := 10 * hold
	m := newMachine(0)
	m.See(0, unlisted(7, 1))
	if got := m.Tick(late); len(got) > 0 {
		t.Fatalf("a node that the record does not list does %v", got)
	}
	only[Commit](t, m.Force(late))
	m = newMachine(0)
	m.See(0, unlisted(7, 1))
	m.Force(1)
	m.See(2, unlisted(8, 2))
	if got := m.Tick(late); len(got) > 0 {
		t.Errorf("after a renewal by the holder, a node with a forced claim does %v", got)
	}
}
