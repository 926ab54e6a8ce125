package networks

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/state"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// chooser is Networks with a clock, and the state that was applied last.
type chooser struct {
	testing.TB
	*Networks
	now time.Time
	// applied has the setting of each network.
	applied map[string]model.Outbound
	applies int
	// refuses is the error of applying a state with ebpf.
	refuses error
}

const hold = time.Minute

// newChooser returns a chooser with networks with outbound auto.
func newChooser(t testing.TB, names ...string) *chooser {
	s := state.New(state.Config{Log: slog.New(slog.DiscardHandler), Life: t.Context()})
	c := &chooser{TB: t, Networks: New(s, nil, nil, hold), now: time.Unix(1000, 0)}
	c.want(names...)
	return c
}

// want makes these the desired networks.
func (c *chooser) want(names ...string) {
	var w model.Desired
	for _, name := range names {
		w.Networks = append(w.Networks, model.Network{Name: name, Driver: model.DriverBridge,
			Outbound: model.OutboundAuto, Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.1.0.0/24")}}})
	}
	c.state.Assume(w)
	c.AutoPaths(w)
}

// apply is the step of a daemon.
func (c *chooser) apply() error {
	c.applies++
	applied := map[string]model.Outbound{}
	for _, n := range c.state.Desired().Networks {
		if applied[n.Name] = c.Chosen(n).Outbound; applied[n.Name] == model.OutboundEBPF && c.refuses != nil {
			return c.refuses
		}
	}
	c.applied = applied
	return nil
}

// reads chooses from what the rules say, in pairs of a network and a reason.
func (c *chooser) reads(changed bool, pairs ...string) error {
	f := Finding{Changed: changed, At: c.now}
	for i := 0; i < len(pairs); i += 2 {
		f.Names, f.Why = append(f.Names, pairs[i]), append(f.Why, pairs[i+1])
	}
	return c.Choose(f, c.apply)
}

// chose compares the choice for a network, and the number of events so far.
func (c *chooser) chose(when, name, text string, events int) {
	c.Helper()
	got := c.Choices()[name]
	if !strings.Contains(got.View().String(), text) {
		c.Errorf("%s: %q, want %q", when, got.View(), text)
	}
	if c.applied != nil && c.applied[name] != got.Outbound() {
		c.Errorf("%s: %s is applied, and %s is chosen", when, c.applied[name], got.Outbound())
	}
	if got := len(c.state.Events()); got != events {
		c.Errorf("%s: %d events, want %d", when, got, events)
	}
}

// TestChooseHolds: after a rule that decides, ebpf is chosen when none has decided for a
// minute. Each choice is one event, also the first one.
func TestChooseHolds(t *testing.T) {
	c := newChooser(t, "a")
	for _, step := range []struct {
		what    string
		after   time.Duration
		why     string
		text    string
		waits   bool
		events  int
		applies int
	}{
		{"the first choice", 0, "rule 1 drops", "outbound nft: rule 1 drops", false, 1, 0},
		{"another rule", time.Second, "rule 2 drops", "outbound nft: rule 2 drops", false, 1, 0},
		{"no rule", time.Second, "", "before: rule 2 drops", true, 1, 0},
		{"a rule while it waits", 59 * time.Second, "rule 3 drops", "outbound nft: rule 3 drops", false, 1, 0},
		{"no rule again", time.Second, "", "ebpf is chosen at", true, 1, 0},
		{"no rule for 59 seconds", 59 * time.Second, "", "ebpf is chosen at", true, 1, 0},
		{"no rule for a minute", time.Second, "", "outbound ebpf", false, 2, 1},
		{"no change", time.Second, "", "outbound ebpf", false, 2, 1},
		{"the way back", time.Second, "rule 4 drops", "outbound nft: rule 4 drops", false, 3, 2},
	} {
		c.now = c.now.Add(step.after)
		if err := c.reads(true, "a", step.why); err != nil {
			t.Fatal(err)
		}
		c.chose(step.what, "a", step.text, step.events)
		if c.applies != step.applies {
			t.Errorf("%s: the state was applied %d times, want %d", step.what, c.applies, step.applies)
		}
		if next := c.NextChoice(); next.IsZero() == step.waits {
			t.Errorf("%s: the next choice is at %s", step.what, next)
		}
	}
	c = newChooser(t, "b")
	if err := c.reads(true, "b", ""); err != nil {
		t.Fatal(err)
	}
	c.chose("without rules, nothing is waited for", "b", "outbound ebpf", 1)
}

// TestChooseForgets: a network that is created again begins anew, with nft.
func TestChooseForgets(t *testing.T) {
	c := newChooser(t, "a")
	if err := c.reads(true, "a", ""); err != nil {
		t.Fatal(err)
	}
	c.want()
	c.want("a")
	if err := c.apply(); err != nil {
		t.Fatal(err)
	}
	if n := c.state.Desired().Networks[0]; c.Chosen(n).Outbound != model.OutboundNFT || len(c.Choices()) != 0 {
		t.Errorf("the network begins with %s, and the choices are %v", c.Chosen(n).Outbound, c.Choices())
	}
	if err := c.reads(false, "a", "a rule drops"); err != nil {
		t.Fatal(err)
	}
	c.chose("the first choice", "a", "outbound nft: a rule drops", 2)
}

// TestChooseRefused: a network for which the host refuses ebpf continues with nft, and another
// one keeps the rule that was its reason in the same step. The next try needs a change of the
// rules, and waits, too.
func TestChooseRefused(t *testing.T) {
	c := newChooser(t, "a", "b")
	if err := c.reads(true, "a", "a rule drops", "b", ""); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(time.Second)
	if err := c.reads(true, "a", "", "b", ""); err != nil {
		t.Fatal(err)
	}
	c.refuses = errors.New("no memory")
	c.now = c.now.Add(hold)
	if err := c.reads(false, "a", "", "b", "another rule drops"); !errors.Is(err, c.refuses) {
		t.Errorf("the error is %v", err)
	}
	c.chose("refused", "a", "outbound nft: no memory", 4)
	c.chose("refused", "b", "outbound nft: another rule drops", 4)
	c.refuses, c.applies = nil, 0
	c.now = c.now.Add(hold)
	if err := c.reads(false, "a", "", "b", "another rule drops"); err != nil || c.applies != 0 {
		t.Errorf("without a change of rules, it was tried again %d times: %v", c.applies, err)
	}
	for range 2 {
		c.chose("before the rules change, and while it waits", "a", "no memory", 4)
		if err := c.reads(true, "a", "", "b", "another rule drops"); err != nil {
			t.Fatal(err)
		}
	}
	c.now = c.now.Add(hold)
	if err := c.reads(false, "a", "", "b", "another rule drops"); err != nil {
		t.Fatal(err)
	}
	c.chose("after the wait", "a", "outbound ebpf", 5)
}

// TestChooseUnopened: a step that waits for ports of the proxy is repeated with the same choice.
func TestChooseUnopened(t *testing.T) {
	c := newChooser(t, "a")
	c.refuses = &engine.UnopenedError{}
	if err := c.reads(true, "a", ""); !sockets.AreUnopened(err) {
		t.Errorf("the error is %v", err)
	}
	if len(c.Choices()) != 0 || len(c.state.Events()) != 0 {
		t.Errorf("the choices are %v, the events %v", c.Choices(), c.state.Events())
	}
	c.refuses = nil
	if err := c.reads(true, "a", ""); err != nil {
		t.Fatal(err)
	}
	c.chose("repeated", "a", "outbound ebpf", 1)
}

// TestChooseUnapplied: if the host cannot follow the way back to nft, users see that connections
// may bypass its rules, and the choice is applied again until it can. That is two events.
func TestChooseUnapplied(t *testing.T) {
	c := newChooser(t, "a")
	if err := c.reads(true, "a", ""); err != nil {
		t.Fatal(err)
	}
	fails := errors.New("another program has the link")
	for range 3 {
		f := Finding{Names: []string{"a"}, Why: []string{"a rule drops"}, At: c.now}
		if err := c.Choose(f, func() error { return fails }); !errors.Is(err, fails) {
			t.Errorf("the error is %v", err)
		}
		shown, next := c.Choices()["a"].View().String(), c.NextChoice()
		if !strings.Contains(shown, "may still bypass its rules: another program") || !next.After(c.now) {
			t.Errorf("shown is %q, and it is applied again at %s", shown, next)
		}
		if n := len(c.state.Events()); n != 2 {
			t.Errorf("%d events", n)
		}
		c.now = next
	}
	if err := c.reads(false, "a", "a rule drops"); err != nil {
		t.Fatal(err)
	}
	c.chose("the host has followed", "a", "outbound nft: a rule drops", 3)
	if next := c.NextChoice(); !next.IsZero() || strings.Contains(c.Choices()["a"].View().String(), "bypass") {
		t.Errorf("%s, %q", next, c.Choices()["a"].View())
	}
}
