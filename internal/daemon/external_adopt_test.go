package daemon_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/driver"
	"fairlead/internal/model"
)

// TestExternalEndpointLosesLink deletes the link of an external endpoint, which its
// engine does not notice. Later the engine removes the endpoint.
func TestExternalEndpointLosesLink(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	n := externals()["bridge"]
	n.Name, n.Origin = "lan", model.FromDocker
	w.network(n)
	a, b := w.watchedSandbox(), w.watchedSandbox()
	first := w.externalEndpoint(a, n, 2)
	w.externalEndpoint(b, n, 3)
	if err := w.Expose(first.Name, []model.Publish{{Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(8080),
		Ports: model.Port(80)}}); err != nil {
		t.Fatal(err)
	}
	a.serves(t, ":80")
	reached := func() {
		t.Helper()
		w.until("the endpoint answers", func() bool {
			return w.host.Do(func() error { return dial("127.0.0.1:8080") }) == nil &&
				strings.Contains(a.sh(t, "ip route"), "default via 172.30.0.1")
		})
		b.reaches(t, netip.AddrPortFrom(first.Addresses[0], 80).String())
		b.reaches(t, netip.AddrPortFrom(first.Addresses[1], 80).String())
	}
	reached()
	w.sh("ip link del " + driver.VethLink(first.Name))
	reached()
	w.stop()
	w.start()
	reached()
	if err := w.Leave(first.Name); err != nil {
		t.Fatal(err)
	}
	if out := a.sh(t, "ip -o link"); strings.Contains(out, "eth") {
		t.Errorf("the sandbox still has\n%s", out)
	}
	if err := w.Leave("ext3"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{first.Name, "ext3"} {
		if _, err := w.Detach(context.Background(), api.DetachRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if all := w.Attachments(); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
	w.removeNetwork("lan")
	w.unchanged(before)
}
