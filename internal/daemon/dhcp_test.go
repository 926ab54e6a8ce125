package daemon_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/dhcp"
	"fairlead/internal/dhcp/dhcptest"
	"fairlead/internal/model"
	"fairlead/test/place"
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
