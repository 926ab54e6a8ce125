package health

import (
	"cmp"
	"fmt"
	"time"

	"fairlead/internal/model"
)

// Record is all that is known of one real server. Its methods are the state
// machine: time is an argument, and nothing is read but the record.
type Record struct {
	// Up is what the checks and the clients' connections say, and Known that they
	// have said anything: before that it is the initial state.
	Up    bool `json:"up"`
	Known bool `json:"known,omitempty"`
	// Streak counts the checks in a row that have said otherwise than Up.
	Streak int `json:"streak,omitempty"`
	// Since is when the state, as State tells it, was last another, and Cause why
	// it changed.
	Since time.Time `json:"since"`
	Cause string    `json:"cause"`
	// Growing is when the slow start began that is under way.
	Growing time.Time `json:"growing,omitzero"`

	// Said is what the agent has last said of each thing.
	Said Advice `json:"said,omitzero"`

	// Failed and Answered count the clients' connections since Window.
	Failed   int       `json:"failed,omitempty"`
	Answered int       `json:"answered,omitempty"`
	Window   time.Time `json:"window,omitzero"`
	// Ejected is when clients' failures took the server down, if that is why it is.
	Ejected time.Time `json:"ejected,omitzero"`
	// Ejections counts how often they did of late where nothing checks the server, and
	// until when the last of them keeps it there.
	Ejections int       `json:"held,omitempty"`
	Until     time.Time `json:"until,omitzero"`
}

// Signal tells how many connections of clients to a real server have failed
// (unanswered, or refused) and how many were answered, since the last signal: a
// tenth of a second ago or so.
type Signal struct{ Failed, Answered int }

// A server that fails burst connections of clients within window is taken down
// at once, unless a signal meanwhile tells of as many answers: few failures among
// many are the clients' own, and answers from before it failed do not help it
// for long.
//
// Rise checks in a row that pass bring it back, if they began after that: what
// asks the server knows sooner than any clock. Where nothing checks it, it is
// held down for shortestHold, twice as long each time, until longestHold, and
// tried again; a time as long without such a failure is forgiveness.
const (
	burst        = 5
	window       = time.Second
	shortestHold = 2 * time.Second
	longestHold  = 5 * time.Minute
)

// first returns the record of a server that has just come, to a service that is
// new or not.
func first(c model.Check, newService bool, now time.Time) Record {
	initial := c.Initial
	if initial == "" && !newService && settle(c).checked {
		initial = model.InitialDown
	}
	if initial == model.InitialDown && settle(c).checked {
		return Record{Since: now, Cause: "not checked yet"}
	}
	return Record{Up: true, Since: now, Cause: "added"}
}

// State returns what the server may get.
func (r Record) State() model.RealState {
	switch {
	case !r.Up, r.Said.Health == "down", r.Said.Admin == "maint":
		return model.RealDown
	case r.Said.Admin == "drain":
		return model.RealDraining
	}
	return model.RealUp
}

// checked takes the result of a check, and reports whether the state has
// changed.
func (r *Record) checked(s settings, res Result, now time.Time) bool {
	before, known := r.State(), r.Known || !s.checked
	cause := r.heed(res.Advice)
	if s.checked && !res.Void {
		cause = cmp.Or(r.count(s, res, now), cause)
	}
	return r.moved(s, before, known, cause, now)
}

// count counts the result, and returns a cause if that has turned Up.
func (r *Record) count(s settings, res Result, now time.Time) string {
	switch {
	case !r.Known:
		r.Known = true
		if r.Up != res.OK {
			r.Up = res.OK
			return "first check: " + res.Detail
		}
		return ""
	case res.OK == r.Up:
		r.Streak = 0
		return ""
	case res.OK && now.Add(-res.Latency).Before(r.Ejected):
		return "" // it began before clients failed
	}
	r.Streak++
	switch {
	case r.Up && r.Streak >= s.fall:
		cause := fmt.Sprintf("%s failed: %s", checks(r.Streak), res.Detail)
		r.Up, r.Streak = false, 0
		return cause
	case !r.Up && r.Streak >= s.rise:
		cause := fmt.Sprintf("%s passed: %s", checks(r.Streak), res.Detail)
		r.up()
		return cause
	}
	return ""
}

// up makes the server up, and ends what clients' failures have done.
func (r *Record) up() { r.Up, r.Streak, r.Ejected = true, 0, time.Time{} }

func checks(n int) string {
	if n == 1 {
		return "1 check"
	}
	return fmt.Sprintf("%d checks", n)
}

// heed takes what the agent says; what it does not speak of stays.
func (r *Record) heed(a Advice) string {
	if a == (Advice{}) {
		return ""
	}
	if a.Weighs {
		r.Said.Weighs, r.Said.Share = true, a.Share
	}
	r.Said.Admin, r.Said.Health = cmp.Or(a.Admin, r.Said.Admin), cmp.Or(a.Health, r.Said.Health)
	r.Said.Reason = a.Reason
	return "agent: " + a.String()
}

// signalled takes a signal, and reports whether the state has changed.
func (r *Record) signalled(s settings, sig Signal, now time.Time) bool {
	if !s.passive || !r.Up {
		return false
	}
	if answers := sig.Answered > 0 && sig.Answered >= sig.Failed; answers || now.Sub(r.Window) > window {
		r.Window, r.Failed, r.Answered = now, 0, 0
		if answers {
			return false
		}
	}
	r.Failed, r.Answered = r.Failed+sig.Failed, r.Answered+sig.Answered
	if r.Failed < burst {
		return false
	}
	before := r.State()
	cause := fmt.Sprintf("clients: %d of %d connections failed; %s", r.Failed, r.Failed+r.Answered, r.keepDown(s, now))
	r.Up, r.Known, r.Streak, r.Failed, r.Answered, r.Ejected = false, true, 0, 0, 0, now
	return r.moved(s, before, true, cause, now)
}

// keepDown notes until when clients' failures keep the server down, and says what
// brings it back.
func (r *Record) keepDown(s settings, now time.Time) string {
	if s.checked {
		return fmt.Sprintf("it is back when %s passed since", have(s.rise))
	}
	if now.Sub(r.Until) > longestHold {
		r.Ejections = 0
	}
	d := hold(r.Ejections)
	r.Until = now.Add(d)
	r.Ejections++
	return fmt.Sprintf("it is tried again after %s", d)
}

func have(n int) string {
	if n == 1 {
		return "1 check has"
	}
	return fmt.Sprintf("%d checks have", n)
}

// readmitted takes an administrator's word that ends what clients' failures have
// done, and reports whether the state has changed.
func (r *Record) readmitted(s settings, now time.Time) bool {
	if r.Ejected.IsZero() {
		return false
	}
	before := r.State()
	r.up()
	r.Ejections, r.Until = 0, time.Time{}
	return r.moved(s, before, true, "its administrator has said so", now)
}

// hold returns how long a server is kept down that was so often before.
func hold(before int) time.Duration {
	return min(longestHold, shortestHold<<min(before, 10))
}

// age lets time pass: what is held down and not checked is tried again, and
// a slow start ends.
func (r *Record) age(s settings, now time.Time) bool {
	if !r.Growing.IsZero() && now.Sub(r.Growing) >= s.slowStart {
		r.Growing = time.Time{}
	}
	if s.checked || r.Up || now.Before(r.Until) {
		return false
	}
	before := r.State()
	r.up()
	return r.moved(s, before, true, "tried again, as nothing checks it", now)
}

// adapt forgets what the service's check no longer asks for: an agent, or
// clients' failures. It reports whether the state has changed.
func (r *Record) adapt(c model.Check, s settings, now time.Time) bool {
	before := r.State()
	if c.Agent == 0 {
		r.Said = Advice{}
	}
	if !c.Passive || s.checked {
		r.Ejections, r.Until = 0, time.Time{}
	}
	return r.moved(s, before, false, "its agent is asked no more", now)
}

// moved notes since when and why the state is another, if it is. known says
// whether the state before was more than the initial one: after a failure a
// server starts slowly.
func (r *Record) moved(s settings, before model.RealState, known bool, cause string, now time.Time) bool {
	after := r.State()
	if after == before {
		return false
	}
	r.Since, r.Cause, r.Growing = now, cause, time.Time{}
	if before == model.RealDown && after == model.RealUp && known && s.slowStart > 0 {
		r.Growing = now
	}
	return true
}
