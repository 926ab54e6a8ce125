package daemon_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/dhcp"
	"fairlead/internal/dhcp/dhcptest"
	"fairlead/internal/model"
	"fairlead/test/place"

	"github.com/google/go-cmp/cmp"
)

// leasing returns a world with a LAN that has the server, and a sandbox.
func leasing(t *testing.T, s *dhcptest.Server) (*world, watchedSandbox, api.AttachRequest) {
	w := newWorld(t)
	w.dhcp = s.Run
	w.start()
	w.sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	w.network(model.Network{Name: "lan", Driver: model.DriverMacvlan, Parent: "up0"})
	b := w.watchedSandbox()
	req := to(b)
	req.Name, req.DHCP = "web", true
	return w, b, req
}

func TestLeases(t *testing.T) {
	s := dhcptest.NewServer()
	w, b, req := leasing(t, s)
	before := w.snapshot()
	r := w.attach(req)
	if got := r.Attachments[0].Prefixes; len(got) != 1 || got[0] != prefix("192.0.2.7/24") {
		t.Errorf("attached with %+v", r.Attachments[0])
	}
	inside := func() string { return b.sh(t, "ip -o addr show eth0; ip route; ip -o link show eth0") }
	for _, want := range []string{"192.0.2.7/24", "default via 192.0.2.1", "198.18.0.0/15 via 192.0.2.254"} {
		if out := inside(); !strings.Contains(out, want) {
			t.Errorf("want %s in the sandbox: %s", want, out)
		}
	}
	mac := b.sh(t, "ip -o link show eth0 | sed 's/.*link.ether //; s/ .*//'")
	if again := w.attach(req); again.Changed {
		t.Errorf("attach again: %+v", again)
	}
	s.Offer("web", dhcptest.Lease("192.0.2.8/24"))
	w.until("the address has changed", func() bool { return w.Attachments()[0].Prefixes[0] == prefix("192.0.2.8/24") })
	if out := inside(); strings.Contains(out, "192.0.2.7/") || !strings.Contains(out, "192.0.2.8/24") ||
		!strings.Contains(out, strings.TrimSpace(mac)) {
		t.Errorf("after another lease, from %s: %s", mac, out)
	}
	s.Offer("web", dhcp.Lease{})
	w.until("the address is gone", func() bool { return len(w.Attachments()[0].Prefixes) == 0 })
	if out := inside(); strings.Contains(out, "192.0.2.") {
		t.Errorf("after the lease was lost: %s", out)
	}
	s.Offer("web", dhcptest.Lease("192.0.2.9/24"))
	w.until("there is an address again", func() bool { return len(w.Attachments()[0].Prefixes) == 1 })
	if _, err := w.Detach(context.Background(), api.DetachRequest{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	if got := s.Released(); len(got) != 1 {
		t.Errorf("released: %v", got)
	}
	w.unchanged(before)
}

// TestNoServer: an attachment that gets no lease leaves nothing behind.
func TestNoServer(t *testing.T) {
	s := dhcptest.NewServer()
	s.Silent = true
	w, _, req := leasing(t, s)
	before := w.snapshot()
	if _, err := w.Attach(context.Background(), req); !errors.Is(err, dhcp.ErrNoServer) {
		t.Errorf("attached without a lease: %v", err)
	}
	if !w.Empty() {
		t.Errorf("attached: %+v", w.Attachments())
	}
	w.unchanged(before)
}

// TestLeaseOfDeadSandbox kills a sandbox that has a lease.
func TestLeaseOfDeadSandbox(t *testing.T) {
	w, b, req := leasing(t, dhcptest.NewServer())
	before := w.snapshot()
	w.attach(req)
	b.kill()
	w.nothingLeft(before)
}

// TestAttachAgainWithoutServer restarts the daemon while no DHCP server answers, and repeats the request. The attachment
// stays, with its address.
func TestAttachAgainWithoutServer(t *testing.T) {
	s := dhcptest.NewServer()
	w, b, req := leasing(t, s)
	w.attach(req)
	w.stop()
	s.Silent = true
	w.start()
	if again := w.attach(req); again.Changed {
		t.Errorf("attach again: %+v", again)
	}
	if out := b.sh(t, "ip -o addr show eth0"); !strings.Contains(out, "192.0.2.7/24") || len(w.Attachments()) != 1 {
		t.Errorf("after the request was repeated without a server: %s, %+v", out, w.Attachments())
	}
}

// leaseProblem waits until the only attachment has a problem with a text, and still its address; or none.
func (w *world) leaseProblem(text string) {
	w.Helper()
	w.until("the problem of the lease is "+text, func() bool {
		v := w.Attachments()[0]
		return v.Status == api.Up && (text == "" && v.Problem == "" || text != "" && strings.Contains(v.Problem, text))
	})
}

// TestNoServerAfterRestart restarts the daemon while no DHCP server answers. The attachment keeps its address and has a
// problem that says so, and the client goes on: when a server answers, the problem ends.
func TestNoServerAfterRestart(t *testing.T) {
	s := dhcptest.NewServer()
	w, b, req := leasing(t, s)
	w.attach(req)
	w.stop()
	s.Silent = true
	w.start()
	w.leaseProblem("its DHCP lease is not confirmed: no DHCP server answers")
	if out := b.sh(t, "ip -o addr show eth0"); !strings.Contains(out, "192.0.2.7/24") {
		t.Errorf("without a server: %s", out)
	}
	s.Answer()
	w.leaseProblem("")
	s.Offer("web", dhcp.Lease{})
	w.leaseProblem("its DHCP lease has ended")
}

// TestNoServerForNextSandbox starts the sandbox of an attachment again, as after a reboot, while no DHCP server answers.
// The client goes on: when a server answers, the attachment gets an address.
func TestNoServerForNextSandbox(t *testing.T) {
	s := dhcptest.NewServer()
	w, _, _ := leasing(t, s)
	w.named("web")
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "web", Network: "lan", Sandbox: "web"}, Keep: true,
		DHCP: true})
	s.Silent = true
	w.unname("web")
	w.until("the attachment waits", func() bool { return w.Attachments()[0].Status == api.Waiting })
	w.named("web")
	w.leaseProblem("its DHCP lease is not confirmed: no DHCP server answers")
	s.Answer()
	w.until("the attachment has an address", func() bool { return len(w.Attachments()[0].Prefixes) == 1 })
	w.leaseProblem("")
}

// TestChangeWithoutServer changes an attachment with an address so that it leases one, while no server answers. The
// attachment is what it was before.
func TestChangeWithoutServer(t *testing.T) {
	s := dhcptest.NewServer()
	s.Silent = true
	w, b, req := leasing(t, s)
	req.DHCP, req.Prefixes = false, []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24")}
	w.attach(req)
	before := w.Attachments()
	changed := req
	changed.DHCP, changed.Prefixes = true, nil
	if _, err := w.Attach(t.Context(), changed); !errors.Is(err, dhcp.ErrNoServer) {
		t.Errorf("changed without a lease: %v", err)
	}
	if diff := cmp.Diff(before, w.Attachments(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("before (-), after (+):\n%s", diff)
	}
	if out := b.sh(t, "ip -o addr show eth0"); !strings.Contains(out, "192.0.2.5/24") {
		t.Errorf("the sandbox has %s", out)
	}
	s.Answer()
	r := w.attach(changed)
	if got := r.Attachments[0].Prefixes; len(got) != 1 || got[0] != prefix("192.0.2.7/24") {
		t.Errorf("changed with a server: %+v", r.Attachments)
	}
	w.attach(req)
	if got := s.Released(); len(got) != 1 {
		t.Errorf("an attachment that leases nothing any more has released %v", got)
	}
}

// TestPublishesWithoutServer changes an attachment so that it leases an address, and publishes ports with the same
// request, while no server answers. The publishes are what they were before, too.
func TestPublishesWithoutServer(t *testing.T) {
	s := dhcptest.NewServer()
	s.Silent = true
	w, _, req := leasing(t, s)
	w.network(model.Network{Name: "lan", Driver: model.DriverMacvlan, Parent: "up0",
		Subnets: []model.Subnet{{Prefix: prefix("192.0.2.0/24")}}})
	req.DHCP, req.Addresses = false, addrs("192.0.2.5")
	req.Publishes = published(model.ViaProxy, 8080)
	w.attach(req)
	changed := req
	changed.DHCP, changed.Addresses = true, nil
	changed.Publishes = published(model.ViaProxy, 8080, 8081)
	changed.Publishes[0].Ports = model.Port(81)
	if _, err := w.Attach(t.Context(), changed); !errors.Is(err, dhcp.ErrNoServer) {
		t.Errorf("changed without a lease: %v", err)
	}
	got := w.Attachments()[0].Publishes
	if len(got) != 1 || got[0].HostPorts != model.Port(8080) || got[0].Ports != model.Port(80) {
		t.Errorf("after the failed change it publishes %+v", got)
	}
}

// TestGatewayUndoReleases: a set that has added an attachment with a lease, and whose gateway fails, releases the lease
// with the attachment. A later attachment of the same name gets a lease of its own.
func TestGatewayUndoReleases(t *testing.T) {
	s, silent := dhcptest.NewServer(), newSilentGateway()
	w := newWorld(t)
	w.dhcp, w.gateway = s.Run, silent
	w.start()
	<-silent.began
	silent.answers <- nil
	w.sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	w.network(model.Network{Name: "lan", Driver: model.DriverMacvlan, Parent: "up0"})
	w.named("shop")
	set := declared("web")
	set.Attachments = []api.Declared{{Endpoint: model.Endpoint{Network: "lan", Sandbox: "netns:shop", Name: "shop"},
		DHCP: true}}
	applied := make(chan error, 1)
	go func() {
		_, err := w.Apply(t.Context(), set, false)
		applied <- err
	}()
	<-silent.began
	w.until("the attachment has an address", func() bool { return len(w.Attachments()[0].Prefixes) == 1 })
	silent.answers <- errors.New("port taken")
	if err := <-applied; err == nil || strings.Contains(err.Error(), "undo") {
		t.Errorf("the apply: %v, want the gateway's error, and that the undo succeeds", err)
	}
	if got := s.Released(); len(got) != 1 || !w.Empty() {
		t.Errorf("after the undo, %v are released, and the attachments are %+v", got, w.Attachments())
	}
	r := w.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: "netns:shop", Name: "shop"},
		DHCP: true})
	if got := r.Attachments[0].Prefixes; len(got) != 1 {
		t.Errorf("attached with %+v", r.Attachments)
	}
}

// TestApplyChangesClient declares another MAC address for an attachment with a lease. The lease of the earlier address is
// released, and the attachment gets one for the new address.
func TestApplyChangesClient(t *testing.T) {
	s := dhcptest.NewServer()
	w, _, _ := leasing(t, s)
	w.named("shop")
	for i, mac := range []string{"02:00:00:00:00:07", "02:00:00:00:00:08"} {
		set := api.Spec{Set: "site", Attachments: []api.Declared{{Endpoint: model.Endpoint{Network: "lan",
			Sandbox: "netns:shop", Name: "shop", MAC: mac}, DHCP: true}}}
		if _, err := w.Apply(t.Context(), set, false); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.Asked:
		case <-time.After(place.Timeout):
			t.Fatalf("no client asks for %s", mac)
		}
		if got := s.Released(); len(got) != i {
			t.Errorf("with %s, %d leases were released, want %d", mac, len(got), i)
		}
	}
}

// TestSlowRelease detaches while the release of a lease takes long. Other requests go on meanwhile, and the link stays
// until the lease is released.
func TestSlowRelease(t *testing.T) {
	s := dhcptest.NewServer()
	s.Releasing = make(chan struct{})
	w, b, req := leasing(t, s)
	w.attach(req)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Detach(context.Background(), api.DetachRequest{Name: "web"})
		ended <- err
	}()
	select {
	case <-s.Ending:
	case <-time.After(place.Timeout):
		t.Fatal("the release does not begin")
	}
	if again := w.Attachments(); len(again) != 1 {
		t.Errorf("while a lease is released, the attachments are %+v", again)
	}
	if out := b.sh(t, "ip -o addr show eth0"); !strings.Contains(out, "192.0.2.7/24") {
		t.Errorf("while a lease is released, the sandbox has %s", out)
	}
	w.network(model.Network{Name: "other", Driver: model.DriverMacvlan, Parent: "up0"}) // with the daemon's mutex
	close(s.Releasing)
	if err := <-ended; err != nil || !w.Empty() || len(s.Released()) != 1 {
		t.Errorf("detached: %v, %+v, released %v", err, w.Attachments(), s.Released())
	}
}

// TestRestartKeepsLease: a restart of the daemon neither releases the lease nor
// removes the address.
func TestRestartKeepsLease(t *testing.T) {
	s := dhcptest.NewServer()
	w, b, req := leasing(t, s)
	w.attach(req)
	w.stop()
	if out := b.sh(t, "ip -o addr show eth0"); !strings.Contains(out, "192.0.2.7/24") || len(s.Released()) != 0 {
		t.Errorf("while no daemon runs: %s, released %v", out, s.Released())
	}
	w.start()
	for range 2 {
		select {
		case c := <-s.Asked:
			if c.Netns != "/proc/"+b.pid+"/ns/net" || c.Link != "eth0" || c.Hostname != "web" {
				t.Errorf("a client starts with %+v", c)
			}
		case <-time.After(place.Timeout):
			t.Fatal("the next daemon has no client")
		}
	}
	if v := w.Attachments()[0]; v.Status != api.Up || len(v.Prefixes) != 1 {
		t.Errorf("after the restart: %+v", v)
	}
	if err := w.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
}
