package hostview_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/rtnl"
)

// TestQuestionsAreAskedOnce: routes and settings that change meanwhile do not change the answers, which belong to one
// moment.
func TestQuestionsAreAskedOnce(t *testing.T) {
	ns := kerneltest.Netns(t)
	h, err := kernel.Open(ns.Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, err := hostview.New(h, hostview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	q := rtnl.RouteQuery{To: netip.MustParseAddr("192.0.2.1")}
	const setting = "net.ipv4.ip_forward"
	_, before := w.Route("", q)
	was := w.Setting("", setting)
	kerneltest.Run(t, ns, "ip", "address", "add", "192.0.2.1/32", "dev", "lo")
	kerneltest.Run(t, ns, "ip", "link", "set", "lo", "up")
	kerneltest.Run(t, ns, "sysctl", "-qw", setting+"=1")
	if _, err := w.Route("", q); before == nil || err == nil || w.Setting("", setting) != was || was != "0" {
		t.Errorf("route: %v, then %v; %s: %q, then %q", before, err, setting, was, w.Setting("", setting))
	}
}
