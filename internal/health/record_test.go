package health

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"fairlead/internal/model"
)

// Each line of a story has an event, "=>", and the record after it: the state, the
// share in percent, and the cause if the state has changed. The event "+2s" advances
// the time.
var stories = []struct {
	name  string
	check model.Check
	isNew bool
	story string
}{
	{"three failures take a server down, two successes bring it back", model.Check{Type: model.CheckTCP}, true, `
		start => up 100
		ok => up 100
		fail => up 100
		fail => up 100
		ok => up 100
		fail => up 100
		fail => up 100
		fail => down 100: 3 checks failed: no
		ok => down 100
		fail => down 100
		ok => down 100
		ok => up 100: 2 checks passed: yes`},
	{"rise and fall as given", model.Check{Type: model.CheckTCP, Rise: 1, Fall: 1}, true, `
		start => up 100
		fail => down 100: first check: no
		ok => up 100: 1 check passed: yes
		fail => down 100: 1 check failed: no`},
	{"a server that is added later is down until its first check", model.Check{Type: model.CheckTCP}, false, `
		start => down 100
		ok => up 100: first check: yes
		fail => up 100`},
	{"the first check also decides in a new service", model.Check{Type: model.CheckTCP}, true, `
		start => up 100
		fail => down 100: first check: no`},
	{"initial down", model.Check{Type: model.CheckTCP, Initial: model.InitialDown}, true, `
		start => down 100
		fail => down 100
		ok => down 100
		ok => up 100: 2 checks passed: yes`},
	{"initial up of a server that is added later", model.Check{Type: model.CheckTCP, Initial: model.InitialUp}, false, `
		start => up 100`},
	{"a server without a check is up", model.Check{}, false, `
		start => up 100`},
	{"void checks do not count", model.Check{Type: model.CheckTCP, Fall: 2}, true, `
		start => up 100
		ok => up 100
		fail => up 100
		void => up 100
		void => up 100
		fail => down 100: 2 checks failed: no`},
	{"slow start after a failure, in steps",
		model.Check{Type: model.CheckTCP, Rise: 1, Fall: 1, SlowStart: 4 * time.Second}, true, `
		start => up 100
		ok => up 100
		fail => down 100: 1 check failed: no
		ok => up 20: 1 check passed: yes
		+999ms => up 20
		+1ms => up 40
		+1s => up 60
		+1s => up 80
		+1s => up 100`},
	{"no slow start at the beginning", model.Check{Type: model.CheckTCP, SlowStart: 4 * time.Second}, false, `
		start => down 100
		ok => up 100: first check: yes`},
	{"an agent's advice stays until it gives other advice", model.Check{Type: model.CheckTCP, Agent: 9}, true, `
		start => up 100
		ok 75% => up 75
		ok => up 75
		ok drain => draining 75: agent: drain
		ok ready => up 75: agent: ready
		ok maint => down 75: agent: maint
		ok up => down 75
		ok ready 100% => up 100: agent: 100% ready
		ok down # the disk is full => down 100: agent: down (the disk is full)
		ok stopped => down 100
		ok up => up 100: agent: up
		ok 0% => up 0`},
	{"an agent does not bring back a server that fails its checks",
		model.Check{Type: model.CheckTCP, Agent: 9, Fall: 1}, true, `
		start => up 100
		ok => up 100
		fail down => down 100: 1 check failed: no
		fail up => down 100`},
	{"an agent alone", model.Check{Agent: 9, SlowStart: 2 * time.Second}, false, `
		start => up 100
		ok down => down 100: agent: down
		void => down 100
		ok up 50% => up 16: agent: 50% up
		+2s => up 50`},
	{"clients' failures take a server down at once, and later checks bring it back",
		model.Check{Type: model.CheckTCP, Passive: true}, true, `
		start => up 100
		ok => up 100
		clients 4/0 => up 100
		clients 1/0 => down 100: clients: 5 of 5 connections failed; it is back after 2 passed checks
		ok => down 100
		ok => up 100: 2 checks passed: yes
		clients 9/3 => down 100: clients: 9 of 12 connections failed; it is back after 2 passed checks
		ok => down 100
		fail => down 100
		+10m => down 100
		ok => down 100
		ok => up 100: 2 checks passed: yes`},
	{"a check that began before the clients' failures does not count",
		model.Check{Type: model.CheckTCP, Passive: true, Rise: 1}, true, `
		start => up 100
		ok => up 100
		clients 5/0 => down 100: clients: 5 of 5 connections failed; it is back after 1 passed check
		+1s => down 100
		late ok => down 100
		ok => up 100: 1 check passed: yes`},
	{"an administrator ends only ejections by clients' failures", model.Check{Type: model.CheckTCP, Passive: true},
		true, `
		start => up 100
		enable => up 100
		clients 5/0 => down 100: clients: 5 of 5 connections failed; it is back after 2 passed checks
		fail => down 100
		enable => up 100: readmitted by the administrator
		fail => up 100
		fail => up 100
		fail => down 100: 3 checks failed: no
		enable => down 100`},
	{"few failures, or failures among many answers, do not count", model.Check{Type: model.CheckTCP, Passive: true},
		true, `
		start => up 100
		clients 4/0 => up 100
		+1001ms => up 100
		clients 4/0 => up 100
		+1001ms => up 100
		clients 50/50 => up 100
		clients 4/0 => up 100
		clients 0/1 => up 100
		clients 4/3 => up 100
		clients 0/900 => up 100
		clients 9/0 => down 100: clients: 9 of 9 connections failed; it is back after 2 passed checks`},
	{"clients' failures without passive checks do not count", model.Check{Type: model.CheckTCP}, true, `
		start => up 100
		clients 50/0 => up 100`},
	{"without checks, ejections last longer each time", model.Check{Passive: true}, true, `
		start => up 100
		clients 5/0 => down 100: clients: 5 of 5 connections failed; it gets clients again after 2s
		+1999ms => down 100
		+1ms => up 100: the time after failed connections is over
		clients 5/0 => down 100: clients: 5 of 5 connections failed; it gets clients again after 4s
		+4s => up 100: the time after failed connections is over
		+5m => up 100
		clients 5/0 => down 100: clients: 5 of 5 connections failed; it gets clients again after 8s
		enable => up 100: readmitted by the administrator
		clients 5/0 => down 100: clients: 5 of 5 connections failed; it gets clients again after 2s
		+2s => up 100: the time after failed connections is over
		+6m => up 100
		clients 5/0 => down 100: clients: 5 of 5 connections failed; it gets clients again after 2s`},
}

func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			now := time.Unix(1000, 0)
			set := settle(s.check)
			rec := first(s.check, s.isNew, now)
			var story strings.Builder
			for line := range strings.SplitSeq(strings.TrimSpace(s.story), "\n") {
				event, _, _ := strings.Cut(strings.TrimSpace(line), " => ")
				changed := happens(t, &rec, set, event, &now)
				fmt.Fprintf(&story, "\n\t\t%s => %s", event, says(rec, set, now, changed))
				rec = restarted(t, rec)
			}
			if story.String() != s.story {
				t.Errorf("the story differs:%s\nwant:%s", story.String(), s.story)
			}
		})
	}
}

func happens(t *testing.T, rec *Record, s settings, event string, now *time.Time) bool {
	word, rest, _ := strings.Cut(event, " ")
	switch {
	case word == "start":
		return false
	case word == "late":
		return rec.checked(s, Result{OK: true, Detail: "yes", Latency: time.Second + 1}, *now)
	case word == "enable":
		return rec.readmitted(s, *now)
	case word == "ok":
		return rec.checked(s, Result{OK: true, Detail: "yes", Advice: ParseAdvice(rest)}, *now)
	case word == "fail":
		return rec.checked(s, Result{Detail: "no", Advice: ParseAdvice(rest)}, *now)
	case word == "void":
		return rec.checked(s, Result{Void: true, Detail: "cannot"}, *now)
	case word == "clients":
		var sig Signal
		if _, err := fmt.Sscanf(rest, "%d/%d", &sig.Failed, &sig.Answered); err != nil {
			t.Fatal(err)
		}
		return rec.signalled(s, sig, *now)
	}
	d, err := time.ParseDuration(strings.TrimPrefix(word, "+"))
	if err != nil {
		t.Fatal(err)
	}
	*now = now.Add(d)
	return rec.age(s, *now)
}

func says(rec Record, s settings, now time.Time, changed bool) string {
	c := rec.condition(s, now)
	state := string(c.State)
	if state == "" {
		state = "up"
	}
	text := fmt.Sprintf("%s %d", state, c.Share)
	if changed {
		text += ": " + rec.Cause
	}
	return text
}

// restarted returns the record after a restart of the daemon; it must not change.
func restarted(t *testing.T, rec Record) Record {
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	var again Record
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	return again
}

func TestWait(t *testing.T) {
	s := settle(model.Check{Type: model.CheckTCP, Interval: 10 * time.Second, Fast: time.Second, Down: 30 * time.Second,
		Jitter: -1})
	for _, c := range []struct {
		name string
		rec  Record
		want time.Duration
	}{
		{"not known yet", Record{Up: true}, time.Second},
		{"up", Record{Up: true, Known: true}, 10 * time.Second},
		{"up, and failing", Record{Up: true, Known: true, Streak: 1}, time.Second},
		{"down", Record{Known: true}, 30 * time.Second},
		{"down, and passing", Record{Known: true, Streak: 1}, time.Second},
	} {
		if got := c.rec.wait(s, 0.99); got != c.want {
			t.Errorf("%s: waits %s, want %s", c.name, got, c.want)
		}
	}
	s = settle(model.Check{Type: model.CheckTCP, Interval: 10 * time.Second})
	up := Record{Up: true, Known: true}
	if least, most := up.wait(s, 0), up.wait(s, 1); least != 9*time.Second || most != 11*time.Second {
		t.Errorf("waits %s to %s, want 9s to 11s", least, most)
	}
}

func TestHold(t *testing.T) {
	for before, want := range map[int]time.Duration{0: 2 * time.Second, 1: 4 * time.Second, 3: 16 * time.Second,
		8: 5 * time.Minute, 1 << 30: 5 * time.Minute} {
		if got := hold(before); got != want {
			t.Errorf("after %d the hold time is %s, want %s", before, got, want)
		}
	}
}

func TestSettle(t *testing.T) {
	want := settings{interval: 2 * time.Second, fast: 2 * time.Second, down: 2 * time.Second, timeout: 2 * time.Second,
		rise: 2, fall: 3, jitter: 10}
	if got := settle(model.Check{}); got != want {
		t.Errorf("defaults are %+v, want %+v", got, want)
	}
	if got := settle(model.Check{Interval: time.Minute, Jitter: -1}); got.timeout != 5*time.Second || got.jitter != 0 {
		t.Errorf("settings for an interval of one minute: %+v", got)
	}
}
