package health

import (
	"cmp"
	"fmt"
	"time"

	"fairlead/internal/model"
)

// Record is the state of one real server. Its methods are the state machine: they
// get the time as an argument, and read only the record.
type Record struct {
	// Up is the result of the checks and of clients' connections. Known is true if
	// there was a result; until then, Up is the initial state.
	Up    bool `json:"up"`
	Known bool `json:"known,omitempty"`
	// Streak counts the consecutive checks whose result contradicts Up.
	Streak int `json:"streak,omitempty"`
	// Since is when the result of State last changed, and Cause is why.
	Since time.Time `json:"since"`
	Cause string    `json:"cause"`
	// Growing is when the current slow start began; zero if there is none.
	Growing time.Time `json:"growing,omitzero"`

	// Said is the agent's last advice on each point.
	Said Advice `json:"said,omitzero"`

	// Failed and Answered count the clients' connections since Window.
	Failed   int       `json:"failed,omitempty"`
	Answered int       `json:"answered,omitempty"`
	Window   time.Time `json:"window,omitzero"`
	// Ejected is when clients' failures took the server down; zero if they did not.
	Ejected time.Time `json:"ejected,omitzero"`
	// Ejections counts how often clients' failures took the server down recently, if
	// the service has no checks. Until is when the last ejection ends.
	Ejections int       `json:"held,omitempty"`
	Until     time.Time `json:"until,omitzero"`
}

// Signal counts connections of clients to a real server since the last signal,
// about 0.1 s ago: those that failed (unanswered or refused), and those that were
// answered.
type Signal struct{ Failed, Answered int }

// A server is taken down at once if burst connections of clients fail within
// window, unless a signal in that time has at least as many answers as failures.
// A few failures among many connections are caused by the clients. Answers from
// before the server failed protect it only for a short time.
//
// The server is back after Rise consecutive checks pass that began later. Without
// checks, it stays down for shortestHold, then for twice as long each time, up to
// longestHold, and then gets clients again. If longestHold passes after that
// without another ejection, the counter of ejections restarts.
const (
	burst        = 5
	window       = time.Second
	shortestHold = 2 * time.Second
	longestHold  = 5 * time.Minute
)

// first returns the record of a server that was just added.
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

// State returns the state that follows from checks, clients and the agent.
func (r Record) State() model.RealState {
	switch {
	case !r.Up, r.Said.Health == "down", r.Said.Admin == "maint":
		return model.RealDown
	case r.Said.Admin == "drain":
		return model.RealDraining
	}
	return model.RealUp
}

// checked applies the result of a check, and reports whether the state changed.
func (r *Record) checked(s settings, res Result, now time.Time) bool {
	before, known := r.State(), r.Known || !s.checked
	cause := r.heed(res.Advice)
	if s.checked && !res.Void {
		cause = cmp.Or(r.count(s, res, now), cause)
	}
	return r.moved(s, before, known, cause, now)
}

// count counts the result. If Up changed, it returns the cause.
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
		return "" // the check began before the clients' failures
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

// up sets the server up, and ends an ejection.
func (r *Record) up() { r.Up, r.Streak, r.Ejected = true, 0, time.Time{} }

func checks(n int) string {
	if n == 1 {
		return "1 check"
	}
	return fmt.Sprintf("%d checks", n)
}

// heed applies the agent's advice. Points that it does not mention stay.
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

// signalled applies a signal, and reports whether the state changed.
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

// keepDown records how long the ejection lasts, and returns as text what ends it.
func (r *Record) keepDown(s settings, now time.Time) string {
	if s.checked {
		return fmt.Sprintf("it is back after %s", passedChecks(s.rise))
	}
	if now.Sub(r.Until) > longestHold {
		r.Ejections = 0
	}
	d := hold(r.Ejections)
	r.Until = now.Add(d)
	r.Ejections++
	return fmt.Sprintf("it gets clients again after %s", d)
}

func passedChecks(n int) string {
	if n == 1 {
		return "1 passed check"
	}
	return fmt.Sprintf("%d passed checks", n)
}

// readmitted ends an ejection on an administrator's request, and reports whether
// the state changed.
func (r *Record) readmitted(s settings, now time.Time) bool {
	if r.Ejected.IsZero() {
		return false
	}
	before := r.State()
	r.up()
	r.Ejections, r.Until = 0, time.Time{}
	return r.moved(s, before, true, "readmitted by the administrator", now)
}

// hold returns how long an ejection lasts after so many earlier ones.
func hold(before int) time.Duration {
	return min(longestHold, shortestHold<<min(before, 10))
}

// age applies the time: an ejection without checks ends, and a slow start ends. It
// reports whether the state changed.
func (r *Record) age(s settings, now time.Time) bool {
	if !r.Growing.IsZero() && now.Sub(r.Growing) >= s.slowStart {
		r.Growing = time.Time{}
	}
	if s.checked || r.Up || now.Before(r.Until) {
		return false
	}
	before := r.State()
	r.up()
	return r.moved(s, before, true, "the time after failed connections is over", now)
}

// adapt removes from the record what the service's check no longer uses: the
// agent's advice, or ejections. It reports whether the state changed.
func (r *Record) adapt(c model.Check, s settings, now time.Time) bool {
	before := r.State()
	if c.Agent == 0 {
		r.Said = Advice{}
	}
	if !c.Passive || s.checked {
		r.Ejections, r.Until = 0, time.Time{}
	}
	return r.moved(s, before, false, "its agent is no longer used", now)
}

// moved records the time and cause if the state changed, and reports whether it
// did. known is true if the state before was not only the initial one: then a
// server that comes back has a slow start.
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
