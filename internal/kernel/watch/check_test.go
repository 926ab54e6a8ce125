package watch

import (
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/plan"
)

// TestCheckReportsAlteredSettings changes settings of a link, for which the kernel
// sends no events.
func TestCheckReportsAlteredSettings(t *testing.T) {
	ns := kerneltest.Netns(t)
	cache := handles.New(ns)
	t.Cleanup(cache.Close)
	reader := rtnl.New(cache)
	links := link.New(cache, reader)
	bridge := plan.Link{Name: "fl-net", Kind: plan.Bridge, MTU: 1500, Owner: "net", IPv6: plan.IPv6Fixed}
	if err := links.SetLink(bridge); err != nil {
		t.Fatal(err)
	}
	w := newWatcher(Config{Net: reader, EBPF: func() (bool, bool) { return true, true },
		Legacy: func(bool) (uint64, error) { return 0, nil }})
	if err := w.Settings(plan.LinkSettings(bridge)); err != nil {
		t.Fatal(err)
	}
	if w.Check() {
		t.Error("unchanged settings are reported")
	}
	for _, s := range plan.LinkSettings(bridge) {
		kerneltest.Run(t, ns, "sysctl", "-qw", s.Name+"="+map[string]string{"0": "1", "1": "0"}[s.Value])
		w.linksChecked = time.Time{}
		if !w.Check() || !w.seen.settings[s.Name] {
			t.Errorf("the change of %s is not reported", s.Name)
		}
		if m := (&Matcher{PendingEvents: w.seen}); !m.linkSettingDiffers(bridge) {
			t.Errorf("%s is not attributed to its link", s.Name)
		}
		if err := links.SetLink(bridge); err != nil {
			t.Fatal(err)
		}
		w.seen = PendingEvents{}
	}
}

// TestPollRules: unreported rules are read only while something bypasses rules, and only changes
// since then are reported.
func TestPollRules(t *testing.T) {
	reads, rules := 0, "one rule"
	cache := handles.New(kerneltest.Netns(t))
	t.Cleanup(cache.Close)
	w := newWatcher(Config{Net: rtnl.New(cache), EBPF: func() (bool, bool) { return true, true },
		Legacy:     func(bool) (uint64, error) { return 0, nil },
		Unreported: func() string { reads++; return rules }})
	check := func(when string, want bool) {
		t.Helper()
		w.Check()
		select {
		case <-w.RulesChanged():
			if !want {
				t.Errorf("%s: a change is reported", when)
			}
		default:
			if want {
				t.Errorf("%s: no change is reported", when)
			}
		}
	}
	check("nothing bypasses rules", false)
	if reads > 0 {
		t.Error("rules are read that are not bypassed")
	}
	w.PollRules(true)
	check("no change", false)
	rules = "two rules"
	w.PollRules(true)
	check("a change", true)
	check("no further change", false)
	rules = "one rule"
	w.CheckRules()
	rules = "two rules"
	check("a reading saw other rules", true)
	w.PollRules(false)
	rules, reads = "three rules", 0
	check("nothing bypasses rules any more", false)
	if reads > 0 {
		t.Error("rules are read that are not bypassed any more")
	}
}

// TestUplinksChange checks which links of the host are noted as uplinks that have changed.
func TestUplinksChange(t *testing.T) {
	for name, c := range map[string]struct {
		namespace int
		is        linkState
		want      bool
	}{
		"a link":                      {netns.NoID, linkState{name: "up0"}, true},
		"a link that left":            {netns.NoID, linkState{name: "up0", gone: true}, true},
		"loopback":                    {netns.NoID, linkState{name: "lo", loopback: true}, false},
		"Fairlead's link":             {netns.NoID, linkState{name: "fl-net", alias: plan.Mark + ":net"}, false},
		"a link of another namespace": {3, linkState{name: "eth0", gone: true}, false},
	} {
		var s PendingEvents
		s.noteLink(linkID{namespace: c.namespace, index: 7}, &c.is)
		if got := (&Matcher{PendingEvents: s}).UplinksChanged(); got != c.want {
			t.Errorf("%s: uplinks changed: %t, want %t", name, got, c.want)
		}
	}
}
