package daemon_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/dhcp"
	"fairlead/internal/dhcp/dhcptest"
	"fairlead/internal/model"
	"fairlead/internal/store"
	"fairlead/test/place"
)

// asked returns the configuration of the next client that a server answers.
func (w *world) asked(s *dhcptest.Server) (c dhcp.Config) {
	w.Helper()
	select {
	case c = <-s.Asked:
	case <-time.After(place.Timeout):
		w.Fatal("timeout: a client asks")
	}
	return c
}

// storedLease returns the stored lease of the only attachment.
func (w *world) storedLease() model.Lease {
	w.Helper()
	stored, err := w.store.Desired()
	if err != nil || len(stored.Attachments) != 1 {
		w.Fatalf("stored: %+v, %v", stored.Attachments, err)
	}
	return stored.Attachments[0].Lease
}

// endsIn fails the test unless the lease ends in this time, give or take the time that a test takes.
func (w *world) endsIn(l model.Lease, want time.Duration) {
	w.Helper()
	if left := l.Ends - alarm.SinceBoot(); left > want || left < want-place.Timeout {
		w.Errorf("the stored lease ends in %s, want %s", left, want)
	}
}

// endLease changes the stored end of the lease while no daemon runs. Zero means that an earlier version has stored it.
func (w *world) endLease(ends time.Duration) {
	w.Helper()
	s, err := store.OpenFile(w.at)
	if err != nil {
		w.Fatal(err)
	}
	stored, err := s.Desired()
	if err == nil {
		stored.Attachments[0].Lease.Ends = ends
		err = s.SaveDesired(stored)
	}
	if err != nil {
		w.Fatal(err)
	}
	if err := s.Close(); err != nil {
		w.Fatal(err)
	}
}

// TestLeaseEndsWhileNoDaemonRuns: an address whose lease has ended is not used before a server has given it again. The
// client asks for the same one.
func TestLeaseEndsWhileNoDaemonRuns(t *testing.T) {
	s := dhcptest.NewServer()
	s.Lasts = time.Hour
	w, b, req := leasing(t, s)
	w.attach(req)
	w.asked(s)
	w.endsIn(w.storedLease(), time.Hour)
	w.stop()
	w.endLease(1) // right after the boot
	s.Silent = true
	w.start()
	if out := b.sh(t, "ip -o addr show eth0"); strings.Contains(out, "192.0.2.") {
		t.Errorf("after the end of the lease, the sandbox has %s", out)
	}
	w.leaseProblem("its DHCP lease is not confirmed: no DHCP server answers")
	s.Answer()
	if c := w.asked(s); c.Last != netip.MustParseAddr("192.0.2.7") {
		t.Errorf("the client asks for %s", c.Last)
	}
	w.until("there is an address again", func() bool { return len(w.Attachments()[0].Prefixes) == 1 })
	if out := b.sh(t, "ip -o addr show eth0"); !strings.Contains(out, "192.0.2.7/24") {
		t.Errorf("with a server, the sandbox has %s", out)
	}
}

// TestLeaseLastsWhileNoDaemonRuns: an address whose lease has not ended, or of which an earlier version has not stored
// the end, is kept without a server. The client knows when it ends.
func TestLeaseLastsWhileNoDaemonRuns(t *testing.T) {
	for name, stored := range map[string]bool{"the end is stored": true, "stored by an earlier version": false} {
		t.Run(name, func(t *testing.T) {
			s := dhcptest.NewServer()
			s.Lasts = time.Hour
			w, b, req := leasing(t, s)
			w.attach(req)
			w.asked(s)
			w.stop()
			if !stored {
				w.endLease(0)
			}
			s.Silent = true
			w.start()
			w.leaseProblem("its DHCP lease is not confirmed: no DHCP server answers")
			if out := b.sh(t, "ip -o addr show eth0"); !strings.Contains(out, "192.0.2.7/24") {
				t.Errorf("without a server, the sandbox has %s", out)
			}
			s.Answer()
			c := w.asked(s)
			if left := c.Ends.Sub(alarm.Now()); c.Ends.IsZero() == stored ||
				stored && (left > time.Hour || left < time.Hour-place.Timeout) {
				t.Errorf("the client believes that the lease ends at %s, in %s", c.Ends, left)
			}
		})
	}
}

// TestRenewedLeaseIsStored renews a lease. The stored end is the new one.
func TestRenewedLeaseIsStored(t *testing.T) {
	s := dhcptest.NewServer()
	s.Lasts = time.Hour
	w, _, req := leasing(t, s)
	w.attach(req)
	renewed := dhcptest.Lease("192.0.2.7/24")
	renewed.Expires = alarm.Now().Add(24 * time.Hour)
	for range 3 { // the daemon has stored the first one when the third one is taken
		s.Offer("web", renewed)
	}
	w.endsIn(w.storedLease(), 24*time.Hour)
}

// TestRenameWithLease gives the interface of an attachment with a lease another name. Its client releases the lease, and
// the next one asks for another.
func TestRenameWithLease(t *testing.T) {
	s := dhcptest.NewServer()
	w, b, req := leasing(t, s)
	w.attach(req)
	w.asked(s)
	req.Interface = "lan0"
	r := w.attach(req)
	if got := r.Attachments[0].Prefixes; len(got) != 1 || got[0] != prefix("192.0.2.7/24") {
		t.Errorf("attached with %+v", r.Attachments[0])
	}
	if c := w.asked(s); c.Link != "lan0" || len(s.Released()) != 1 {
		t.Errorf("the next client is on %s, and %v are released", c.Link, s.Released())
	}
	if out := b.sh(t, "ip -o addr"); strings.Contains(out, "eth0") || !strings.Contains(out, "192.0.2.7/24") {
		t.Errorf("the sandbox has %s", out)
	}
}

// TestRenameWithoutServer gives the interface of an attachment with a lease another name while no server answers. The
// request fails, and the interface has its name again. It has no address before a server answers, because the lease is
// released.
func TestRenameWithoutServer(t *testing.T) {
	s := dhcptest.NewServer()
	w, b, req := leasing(t, s)
	w.attach(req)
	s.Silent = true
	req.Interface = "lan0"
	if _, err := w.Attach(t.Context(), req); !errors.Is(err, dhcp.ErrNoServer) {
		t.Errorf("renamed without a server: %v", err)
	}
	if out := b.sh(t, "ip -o addr; ip -br link"); !strings.Contains(out, "eth0") || strings.Contains(out, "lan0") ||
		strings.Contains(out, "192.0.2.7") || len(s.Released()) != 1 {
		t.Errorf("%v are released, and the sandbox has %s", s.Released(), out)
	}
	s.Answer()
	w.until("there is an address again", func() bool { return len(w.Attachments()[0].Prefixes) == 1 })
}

// TestLeaseEndsWhileItsNetworkIsUnavailable starts the daemon while the parent of the network is missing. The lease ends
// before the parent is back. The address is not used, and the client asks for it again.
func TestLeaseEndsWhileItsNetworkIsUnavailable(t *testing.T) {
	s := dhcptest.NewServer()
	s.Lasts = time.Hour
	w, b, req := leasing(t, s)
	w.attach(req)
	w.asked(s)
	w.stop()
	ends := alarm.SinceBoot() + time.Second
	w.endLease(ends)
	w.sh("ip link del up0")
	s.Silent = true
	w.start()
	if v := w.Attachments()[0]; !strings.Contains(v.Problem, "up0") {
		t.Errorf("without its parent, the attachment is %s: %s", v.Status, v.Problem)
	}
	if err := alarm.Until(t.Context(), func() time.Duration { return ends - alarm.SinceBoot() }); err != nil {
		t.Fatal(err)
	}
	w.sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	w.leaseProblem("its DHCP lease is not confirmed: no DHCP server answers")
	if out := b.sh(t, "ip -o addr show eth0"); strings.Contains(out, "192.0.2.") {
		t.Errorf("after the end of the lease, the sandbox has %s", out)
	}
	s.Answer()
	if c := w.asked(s); c.Last != netip.MustParseAddr("192.0.2.7") {
		t.Errorf("the client asks for %s", c.Last)
	}
	w.until("there is an address again", func() bool { return len(w.Attachments()[0].Prefixes) == 1 })
}
