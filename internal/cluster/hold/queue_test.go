package hold

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/kernel/virtual"
)

// TestQueue compares a queue with a look at each of its addresses, while their times change at random.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q queue
	all := make([]address, 50)
	want := map[*address]time.Duration{}
	for range 10_000 {
		a, due := &all[random.IntN(len(all))], time.Duration(1+random.IntN(1000))
		switch random.IntN(4) {
		case 0:
			q.remove(a)
			delete(want, a)
		case 1:
			now := q.first() + time.Duration(random.IntN(20))
			for _, a := range q.take(now) {
				if want[a] == 0 || want[a] > now {
					t.Fatalf("at %d: the queue returns an address that is due at %d", now, want[a])
				}
				delete(want, a)
			}
		default:
			q.set(a, due)
			want[a] = due
		}
		first := time.Duration(0)
		for _, due := range want {
			if first == 0 || due < first {
				first = due
			}
		}
		if len(q) != len(want) || q.first() != first {
			t.Fatalf("the queue has %d addresses, the first is due at %d; want %d, at %d", len(q), q.first(), len(want),
				first)
		}
	}
}

// many returns a Runner with addresses for which nothing is due in the next hour.
func many(tb testing.TB, n int) (r *Runner, all []*address) {
	tb.Helper()
	r, err := New(Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.timer.close)
	r.life, r.restart, r.snapshot = tb.Context(), math.MaxInt64, kv.NewTable(1, nil)
	for i := range n {
		a := r.add(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), virtual.Now()+time.Hour)
		a.entry.Value = []byte("{}")
	}
	for _, a := range r.sorted() {
		r.do(a, a.machine.Tick(virtual.Now()))
		r.refresh(a)
	}
	r.settle()
	return r, r.sorted()
}

// TestTickConcernsWhatIsDue: when something is due for some of 500 addresses, the others are not looked at. Each
// address that is looked at forgets that it could not be opened long ago.
func TestTickConcernsWhatIsDue(t *testing.T) {
	r, all := many(t, 500)
	for _, due := range []int{0, 1, 7, 500} {
		for i, a := range all {
			a.failed, a.retry = "a test", 1
			if i < due {
				r.touch(a)
			}
		}
		r.settle()
		r.tick()
		looked := 0
		for _, a := range all {
			if a.failed == "" {
				looked++
			}
		}
		if looked != due {
			t.Errorf("%d of 500 addresses are due, and %d are looked at", due, looked)
		}
	}
	for _, a := range all {
		if a.due != a.next() || r.due[a.slot-1] != a {
			t.Errorf("address %s is at time %s of the queue, want %s", a.addr, a.due, a.next())
		}
	}
}

// BenchmarkTick looks at each of 500 addresses once, as in the time in which each is renewed once.
func BenchmarkTick(b *testing.B) {
	r, all := many(b, 500)
	for b.Loop() {
		for _, a := range all {
			a.failed, a.retry = "a benchmark", 1
			r.touch(a)
			r.settle()
			r.tick()
		}
	}
}
