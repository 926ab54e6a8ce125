package networks_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/cluster/record"
)

// renew changes the records of virtual addresses for a number of seconds, as their holders do: each ten times per
// second. It returns how often the networks of the first host were set meanwhile.
func (w *world) renew(seconds int) int {
	w.Helper()
	w.settle()
	before := w.hosts[0].applies
	for range seconds * 10 {
		for i := range 5 {
			w.put(w.clients[1], record.Key(record.Addresses, fmt.Sprint("192.0.2.10", i)), record.Address{})
		}
		time.Sleep(time.Second / 10) // of the bubble's clock
		synctest.Wait()
	}
	return w.hosts[0].applies - before
}

// TestRenewalsApplyNothing renews virtual addresses. That does not apply the networks of the cluster on a host. What
// the host has refused is tried again, but not with each renewal.
func TestRenewalsApplyNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.create()
		if n := w.renew(10); n > 0 {
			t.Errorf("renewals have applied the networks %d times", n)
		}
		w.hosts[0].refused = []string{"network web: another program has its port"}
		w.put(w.clients[1], record.Key(record.Nodes, "n2"), record.Node{ID: "n2", Name: "n2"})
		if n := w.renew(10); n < 2 || n > int(10*time.Second/every) {
			t.Errorf("in 10 s a refused network was tried again %d times, want at most once in %s", n, every)
		}
		w.hosts[0].refused = nil
		w.renew(2)
		if n := w.renew(10); n > 0 {
			t.Errorf("renewals have applied the networks %d times after the host has accepted them", n)
		}
	})
}
