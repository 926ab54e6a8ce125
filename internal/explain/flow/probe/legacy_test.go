package probe_test

import (
	"os/exec"
	"testing"
	"time"

	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/kernel/netns"
)

// TestLegacyDrop: netfilter does not trace rules of legacy iptables, so a packet
// without an answer agrees with a drop by one of them.
func TestLegacyDrop(t *testing.T) {
	host, _ := newHost(t)
	ns, err := netns.Open(host.Net().Path())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := ns.Do(func() error {
		return exec.Command("sh", "-ec", "ip link set lo up; iptables-legacy -A INPUT -p tcp --dport 81 -j DROP").Run()
	}); err != nil {
		t.Fatal(err)
	}
	w, e := explainNow(t, host, hostview.Options{}, "localhost to :81")
	if err := probe.Send(t.Context(), w, &e, probe.Options{Timeout: time.Second}); err != nil {
		t.Fatal(err)
	}
	if e.Outcome != flow.Dropped || e.Probe == nil || !e.Probe.Agrees {
		t.Errorf("%s: %s, and the probe: %+v", e.Outcome, e.Verdict, e.Probe)
	}
}
