package machines_test

import (
	"slices"
	"strings"
	"testing"
)

// TestSite: visitors on one machine visit the web site on the other, whose director and
// nodes are behind a router there. Each byte is compared with the expected one, and
// responses bypass the director.
func TestSite(t *testing.T) { visitBetween(t, "site:fairlead-1", "site:fairlead-4") }

// TestSiteIPv6: the same over IPv6. A run counts only if the packets were of IPv6.
func TestSiteIPv6(t *testing.T) {
	visitBetween(t, "site:fairlead-4", "--baseline", "site:fairlead-4", "--family", "6")
}

// visitBetween visits web sites of which the laboratory's arguments name the paths.
func visitBetween(t *testing.T, args ...string) {
	t.Parallel()
	client, server, _ := machines(t)
	agent, token := startAgent(t, server)
	rep := report(t, client, token, append([]string{"site", "--workload", "visits-5", "--duration", "600ms"},
		args...)...)
	for i := range rep.Runs {
		// A busy machine may delay the visitors.
		rep.Runs[i].Invalid = slices.DeleteFunc(rep.Runs[i].Invalid, func(why string) bool {
			return strings.Contains(why, "delayed")
		})
	}
	paths := slices.DeleteFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "site:") })
	measured(t, rep, paths...)
	for _, run := range rep.Runs {
		switch s := run.Site; {
		case s == nil || s.Visits == 0 || s.Failed > 0 || s.Bytes == 0 || len(run.Ledgers) != 2:
			t.Errorf("%s: %+v, failed %v, ledgers of %d machines", run.Path, s, run.Failed, len(run.Ledgers))
		case (run.Proof.Absent != "") != (run.Path == "site:fairlead-4"):
			t.Errorf("%s: the proof says nothing about the director: %+v", run.Path, run.Proof)
		}
	}
	nothingLeft(t, agent)
}

// TestSiteEventsOfOneMachine: a node's failure is not measured between two machines.
func TestSiteEventsOfOneMachine(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	_, token := startAgent(t, server)
	text, err := runLab(t, client, token, "site", "site:fairlead-4", "--baseline", "site:fairlead-4", "--workload",
		"visits-killed")
	if err == nil || !strings.Contains(text, "one clock") {
		t.Errorf("%v: %s", err, text)
	}
}
