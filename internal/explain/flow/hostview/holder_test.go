package hostview_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
)

// TestHolderIsLinked: a namespace without a link to another one has the address of a machine of the LAN. Packets from
// that address do not come from there. A namespace behind another one is linked to the host.
func TestHolderIsLinked(t *testing.T) {
	host, router, behind, stranger := kerneltest.Netns(t), kerneltest.Netns(t), kerneltest.Netns(t), kerneltest.Netns(t)
	at := func(ns *netns.Namespace) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.File().Fd()) }
	kerneltest.Run(t, host, "ip", "link", "add", "br0", "type", "bridge")
	kerneltest.Run(t, host, "ip", "link", "add", "up", "master", "br0", "type", "veth", "peer", "name", "down",
		"netns", at(router))
	kerneltest.Run(t, router, "ip", "link", "add", "up", "type", "veth", "peer", "name", "down", "netns",
		at(behind))
	kerneltest.Run(t, host, "ip", "address", "add", "192.0.2.1/24", "dev", "br0")
	kerneltest.Run(t, behind, "ip", "address", "add", "192.0.2.8/24", "dev", "down")
	kerneltest.Run(t, stranger, "ip", "address", "add", "192.0.2.7/24", "dev", "lo")
	kerneltest.Run(t, host, "ip", "link", "set", "br0", "up")

	h, err := kernel.Open(host.Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, err := hostview.New(h, hostview.Options{Sandboxes: map[string]string{
		"router": router.Path(), "behind": behind.Path(), "stranger": stranger.Path()}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for from, origin := range map[string]string{"192.0.2.7": "", "192.0.2.8": behind.Path()} {
		holder, linked, ok := w.Holder(netip.MustParseAddr(from))
		if !ok || linked != (origin != "") || linked && holder != origin {
			t.Errorf("%s is in %q, linked: %v, %v; want %q", from, holder, linked, ok, origin)
		}
		e, err := flow.Explain(w.Facts(), flow.Flow{From: from, To: "192.0.2.1", Port: 80, Proto: model.TCP})
		if err != nil || e.Outside != (origin == "") {
			t.Errorf("%s is outside: %v, %v; want %v", from, e.Outside, err, origin == "")
		}
	}
}
