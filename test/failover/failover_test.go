package failover_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fairlead/internal/daemon"
	"fairlead/internal/model"
	"fairlead/test/failover"
)

// planes are those of this kernel.
var planes = []model.Plane{model.PlaneEBPF, model.PlaneNFT}

// service is checked as the bars say: every second, out after two failures.
func service(plane model.Plane, passive bool) model.VirtualService {
	return model.VirtualService{Plane: plane, Drain: 10 * time.Second,
		Check: model.Check{Type: model.CheckHTTP, Interval: time.Second, Fall: 2, Rise: 2, Passive: passive}}
}

// TestFailover has one server killed, started again, and another drained, while
// clients ask: of each of these they notice no more than they must.
func TestFailover(t *testing.T) {
	for _, plane := range planes {
		t.Run(string(plane), func(t *testing.T) {
			t.Parallel()
			v := service(plane, false)
			v.Check.Interval, v.Check.Fall, v.Check.Rise = 100*time.Millisecond, 2, 1
			w := newWorld(t, v)
			for _, name := range servers {
				w.until(name, daemon.RealUp)
			}
			asked := w.ask(200)
			_ = w.nginx["a"].Kill() // its exit status says only that we killed it
			w.until("a", daemon.RealDown)
			out := time.Now()
			w.change("b", daemon.DrainReal)
			w.start("a")
			w.until("a", daemon.RealUp)
			w.answers("a")
			w.change("b", daemon.EnableReal)
			w.answers("b")
			all := asked.over()
			if o := failover.Judge(after(all, out), out.UnixNano()); o.Failed > 0 || o.Asked == 0 {
				t.Errorf("%d of %d requests fail that began after the dead server was out: %v", o.Failed, o.Asked, o.Errors)
			}
		})
	}
}

// after returns the requests that began after a moment.
func after(all []failover.Request, moment time.Time) []failover.Request {
	i := slices.IndexFunc(all, func(r failover.Request) bool { return r.Start > moment.UnixNano() })
	if i < 0 {
		return nil
	}
	return all[i:]
}

// BenchmarkFailover kills, revives and drains under load, and tells what clients
// noticed: `go test -run '^$' -bench BenchmarkFailover -benchtime 5x`.
func BenchmarkFailover(b *testing.B) {
	for _, plane := range planes {
		for _, passive := range []bool{false, true} {
			if passive && plane != model.PlaneEBPF {
				continue
			}
			for _, death := range []string{"killed", "cut"} {
				b.Run(fmt.Sprintf("%s/%s/passive=%t", plane, death, passive), func(b *testing.B) { benchDeath(b, plane, death, passive) })
			}
		}
		b.Run(fmt.Sprintf("%s/drained", plane), func(b *testing.B) { benchDrain(b, plane) })
	}
}

// rate is in requests a second, each on a connection of its own.
const rate = 1000

// calm is how long clients ask before and after an event.
const calm = 500 * time.Millisecond

// tally adds up what clients have noticed of several events.
type tally struct {
	asked, failed   int
	notice, slowest []time.Duration
	back            []time.Duration
	errors          map[string]int
}

func (t *tally) add(o failover.Outcome) {
	t.asked, t.failed = t.asked+o.Asked, t.failed+o.Failed
	t.notice, t.slowest = append(t.notice, o.Notice), append(t.slowest, o.Slowest)
	for why, n := range o.Errors {
		if t.errors == nil {
			t.errors = map[string]int{}
		}
		t.errors[why] += n
	}
}

func (t *tally) report(b *testing.B) {
	b.ReportMetric(float64(t.failed)/float64(b.N), "failed/event")
	b.ReportMetric(float64(t.asked)/float64(b.N), "asked/event")
	for _, m := range []struct {
		name string
		all  []time.Duration
	}{{"notice", t.notice}, {"slowest", t.slowest}, {"back", t.back}} {
		if len(m.all) == 0 {
			continue
		}
		slices.Sort(m.all)
		b.ReportMetric(float64(m.all[len(m.all)/2].Milliseconds()), m.name+"-p50-ms")
		b.ReportMetric(float64(m.all[len(m.all)-1].Milliseconds()), m.name+"-max-ms")
	}
	if t.failed > 0 {
		b.Logf("failed: %v", t.errors)
	}
}

// benchDeath kills a server under load, or cuts it off, and has it come back.
func benchDeath(b *testing.B, plane model.Plane, death string, passive bool) {
	w := newWorld(b, service(plane, passive))
	var t tally
	for b.Loop() {
		for _, name := range servers {
			w.until(name, daemon.RealUp)
		}
		asked := w.ask(rate)
		time.Sleep(calm)
		event := time.Now()
		if death == "cut" {
			w.cut("a")
		} else {
			_ = w.nginx["a"].Kill() // its exit status says only that we killed it
		}
		w.until("a", daemon.RealDown)
		time.Sleep(2 * calm)
		back := time.Now()
		if death == "cut" {
			w.mend("a")
		} else {
			w.start("a")
		}
		w.until("a", daemon.RealUp)
		time.Sleep(calm)
		all := asked.over()
		t.add(failover.Judge(all, event.UnixNano()))
		took, again := failover.Back(all, back.UnixNano(), "a")
		if !again {
			b.Error("the server never answers again")
		}
		t.back = append(t.back, took)
	}
	t.report(b)
}

// benchDrain drains a server under load, stops it, starts it and enables it.
func benchDrain(b *testing.B, plane model.Plane) {
	w := newWorld(b, service(plane, false))
	var t tally
	for b.Loop() {
		for _, name := range servers {
			w.until(name, daemon.RealUp)
		}
		asked := w.ask(rate)
		time.Sleep(calm)
		event := time.Now()
		w.change("a", daemon.DrainReal)
		w.until("a", daemon.RealDrained)
		_ = w.nginx["a"].Kill() // its exit status says only that we killed it
		time.Sleep(calm)
		w.start("a")
		w.change("a", daemon.EnableReal)
		time.Sleep(calm)
		t.add(failover.Judge(asked.over(), event.UnixNano()))
	}
	t.report(b)
}
