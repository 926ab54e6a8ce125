package truth_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead/test/truth"
)

// ciFlows is the number of flows without FAIRLEAD_TRUTH.
const ciFlows = 240

// maxUnknown is the share of flows through documented hosts that may be unknown.
const maxUnknown = 0.15

// shrinkTries limits how many hosts are built to find the smallest one with a wrong verdict.
const shrinkTries = 60

// TestGeneratedHosts explains flows through generated hosts and compares the verdicts with
// the fates of real packets. FAIRLEAD_TRUTH is the number of flows, FAIRLEAD_TRUTH_FIRST the
// first seed.
func TestGeneratedHosts(t *testing.T) {
	flows, first := number(t, "FAIRLEAD_TRUTH", ciFlows), number(t, "FAIRLEAD_TRUTH_FIRST", 1)
	perHost := len(truth.Generate(1).Flows)
	hosts := (flows + perHost - 1) / perHost
	var documented, other count
	var once sync.Once
	var mu sync.Mutex
	refused, commands := 0, 0
	together(hosts, func(i int) {
		g := truth.Generate(uint64(first + i))
		t.Run(fmt.Sprint(g.Seed), func(t *testing.T) {
			h := truth.Build(t, g.Commands)
			all := h.Explain(t, g.Flows)
			for i, f := range all {
				if f.Judgement == truth.Wrong { // other flows may have changed the neighbour tables meanwhile
					f = truth.Build(t, g.Commands).Explain(t, []string{f.Text})[0]
					all[i] = f
				}
				t.Log(f)
				if f.Judgement == truth.Wrong {
					t.Errorf("seed %d: %s: it is %s %s, but the explanation is: %s\n%s", g.Seed, f.Text,
						f.Fate.Result, f.Fate.By,
						f.Verdict, truth.Path(f.Explanation))
					once.Do(func() { t.Log(smallest(t, g, f)) })
				}
			}
			map[bool]*count{true: &documented, false: &other}[g.Documented].add(all)
			mu.Lock()
			defer mu.Unlock()
			refused, commands = refused+len(h.Refused), commands+len(g.Commands)
		})
	})
	report(t, hosts, &documented, &other)
	if t.Logf("the hosts refused %d of %d commands", refused, commands); refused*3 > commands {
		t.Errorf("too many of the generated commands are not valid: %d of %d", refused, commands)
	}
}

// report logs the counts, and checks the share of unknown verdicts if all of the hosts were tested.
func report(t *testing.T, hosts int, documented, other *count) {
	t.Helper()
	for name, c := range map[string]*count{"documented": documented, "other": other} {
		flows, unknown := c.total()
		t.Logf("%s hosts: %d, flows: %d %v, %.1f %% unknown", name, c.hosts, flows, c.of, 100*unknown)
	}
	whole := documented.hosts+other.hosts == hosts // -run may leave out hosts
	if _, unknown := documented.total(); whole && unknown > maxUnknown {
		t.Errorf("%.1f %% of the flows through documented hosts are unknown, want at most %.0f %%", 100*unknown,
			100*maxUnknown)
	}
}

// smallest returns the smallest host with which the verdict about a flow is wrong, in the
// form of a named case.
func smallest(t *testing.T, g truth.Generated, f truth.Checked) string {
	wrong := func(commands []string) (wrong bool) {
		t.Run("smaller", func(t *testing.T) {
			wrong = truth.Build(t, commands).Explain(t, []string{f.Text})[0].Judgement == truth.Wrong
		})
		return wrong
	}
	return fmt.Sprintf("the smallest host:\n\t{name: \"seed %d\", script: `%s`, flows: []string{%q}},", g.Seed,
		strings.Join(truth.Shrink(g.Commands, shrinkTries, wrong), "\n"), f.Text)
}

// TestShrink checks that the two commands that matter remain.
func TestShrink(t *testing.T) {
	all := strings.Fields("a b c d e f g h i j")
	got := truth.Shrink(all, shrinkTries, func(c []string) bool {
		return slices.Contains(c, "c") && slices.Contains(c, "h")
	})
	if want := []string{"c", "h"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
