package daemon_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// gate is a host whose steps a test can block or make fail.
type gate struct {
	*kernel.Host
	mu sync.Mutex
	// about, if not empty, is the service whose steps fail.
	about string
	// shut, if not nil, blocks steps until it is closed. reached receives a value when
	// a step is blocked.
	shut    chan struct{}
	reached chan struct{}
	fails   error
	failed  int
}

func newGate(w *world) *gate {
	g := &gate{Host: w.host, reached: make(chan struct{}, 1)}
	w.wrap = g
	return g
}

// shutNow blocks steps until open is called.
func (g *gate) shutNow() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.shut = shut
	return func() {
		g.mu.Lock()
		g.shut = nil
		g.mu.Unlock()
		close(shut)
	}
}

// fail makes later steps fail, of one service or, if about is empty, of all. A nil
// error ends that.
func (g *gate) fail(err error, about string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails, g.about = err, about
}

// refused returns how many steps have failed.
func (g *gate) refused() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

func (g *gate) pass(objects ...plan.Object) error {
	g.mu.Lock()
	shut, err := g.shut, g.fails
	if g.about != "" && !slices.ContainsFunc(objects,
		func(o plan.Object) bool { return strings.HasSuffix(o.Key(), " service "+g.about) }) {
		err = nil
	}
	if err != nil {
		g.failed++
	}
	g.mu.Unlock()
	if shut != nil {
		select {
		case g.reached <- struct{}{}:
		default:
		}
		<-shut
	}
	return err
}

func (g *gate) Apply(ops []plan.Op) (done int, err error) {
	for batch := range plan.Batches(ops) {
		var objects []plan.Object
		for _, op := range batch {
			objects = append(objects, op.Object)
		}
		if err := g.pass(objects...); err != nil {
			return done, err
		}
		n, err := g.Host.Apply(batch)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// checked returns a service with frequent checks of its real servers 10.0.0.2:8080 and
// 10.0.0.3:8080.
func checked(w *world) model.VirtualService {
	w.sh("ip link set lo up; ip addr add 10.0.0.2/32 dev lo; ip addr add 10.0.0.3/32 dev lo")
	v := site("web", at("10.0.0.2", 8080), at("10.0.0.3", 8080))
	v.Plane = model.PlaneNFT
	v.Check = model.Check{Type: model.CheckTCP, Interval: 20 * time.Millisecond, Timeout: place.Timeout, Fall: 1,
		Rise: 1}
	return v
}

// TestStateFollowsDataPlane: the reported state of a real server is its state in the
// data plane, not the state that is about to be applied.
func TestStateFollowsDataPlane(t *testing.T) {
	w := newWorld(t)
	host := newGate(w)
	w.start()
	v := checked(w)
	w.serves("10.0.0.2:8080")
	stop := w.serves("10.0.0.3:8080")
	w.serve(v)
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 up")
	before := len(w.happened())
	open := host.shutNow()
	stop()
	<-host.reached // the checks have found that it is down
	if got := w.happened()[before:]; len(got) != 0 {
		t.Errorf("reported before the data plane has it: %q", got)
	}
	open()
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 down")
	if got := w.happened()[before:]; !slices.Equal(got, []string{"service web real 10.0.0.3:8080: down"}) {
		t.Errorf("%q", got)
	}
}

// TestFirstCheckFollowsStep: a new real server is not down because the step that makes
// it reachable is not done yet.
func TestFirstCheckFollowsStep(t *testing.T) {
	w := newWorld(t)
	host := newGate(w)
	w.start()
	v := checked(w)
	v.Reals = v.Reals[:1]
	open := host.shutNow()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.serve(v)
	}()
	<-host.reached
	w.serves("10.0.0.2:8080")
	open()
	<-done
	w.stands("web", "10.0.0.2:8080 up")
	if s, err := w.Service("web"); err != nil ||
		slices.ContainsFunc(w.happened(), func(e string) bool { return strings.Contains(e, "down") }) {
		t.Errorf("%v; %+v; %q", err, s.Reals, w.happened())
	}
}

// TestDataPlaneFails: while a data plane cannot be changed, the earlier states are
// shown, with the reason. Other services are not affected.
func TestDataPlaneFails(t *testing.T) {
	w := newWorld(t)
	host := newGate(w)
	w.start()
	v := checked(w)
	other := v.Clone()
	other.Name, other.Addresses = "other", addrs("192.0.2.11")
	w.serves("10.0.0.2:8080")
	stop := w.serves("10.0.0.3:8080")
	const before, after = "10.0.0.2:8080 up, 10.0.0.3:8080 up", "10.0.0.2:8080 up, 10.0.0.3:8080 down"
	for _, v := range []model.VirtualService{v, other} {
		w.serve(v)
		w.stands(v.Name, before)
	}
	host.fail(errors.New("the kernel refuses the test"), "web")
	stop()
	w.awaitEvent("service web: failed")
	w.stands("other", after)
	problem := func() string {
		v, err := w.Service("web")
		if err != nil {
			t.Fatal(err)
		}
		return v.Problem
	}
	if got := problem(); w.servers("web") != before || !strings.Contains(got, "the kernel refuses the test") {
		t.Errorf("the data plane failed, and the servers are %s, the problem %q", w.servers("web"), got)
	}
	host.fail(nil, "")
	w.stands("web", after)
	if got := problem(); got != "" {
		t.Errorf("the problem is still %q", got)
	}
}

// awaitEvent waits for an event.
func (w *world) awaitEvent(event string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), place.Timeout)
	defer cancel()
	for e := range w.FollowEvents(ctx) {
		if e.Object+": "+string(e.Kind) == event {
			return
		}
	}
	w.Fatalf("no event %s", event)
}

// TestPanicAndSorry: a server that is used in a panic is up although its check fails.
// While the sorry server is used, a server that is up drains.
func TestPanicAndSorry(t *testing.T) {
	w := newWorld(t).start()
	v := checked(w)
	v.Panic = 60
	w.serves("10.0.0.2:8080")
	w.serve(v)
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 up")
	w.awaitEvent("service web: panic")
	view, err := w.Service("web")
	if err != nil || view.Status != api.ServicePanics ||
		!strings.HasPrefix(view.Servers[1].Cause,
			"used in a panic although down: first check: connect: connection refused") {
		t.Errorf("%+v, %v", view, err)
	}
	v.Panic, v.Quorum, v.Sorry = 0, 2, netip.MustParseAddrPort("10.0.0.9:80")
	w.serve(v)
	w.stands("web", "10.0.0.2:8080 draining, 10.0.0.3:8080 down, 10.0.0.9:80 sorry")
	view, err = w.Service("web")
	if err != nil || view.Servers[0].Cause != "the sorry server is used: 1 of 2 real servers are up, and 2 must be" {
		t.Errorf("%+v, %v", view, err)
	}
}

// TestCauseNamesLastFailure: the cause of a server that is down also names the last
// failure, if that differs from the first.
func TestCauseNamesLastFailure(t *testing.T) {
	w := newWorld(t).start()
	v := checked(w)
	v.Check.Type = model.CheckHTTP
	w.serve(v)
	w.stands("web", "10.0.0.2:8080 down, 10.0.0.3:8080 down")
	w.serves("10.0.0.2:8080") // closes each connection at once
	for deadline := time.Now().Add(place.Timeout); ; time.Sleep(time.Millisecond) {
		view, err := w.Service("web")
		if err != nil {
			t.Fatal(err)
		}
		changed, same := view.Servers[0].Cause, view.Servers[1].Cause
		if strings.Contains(same, "last check") {
			t.Fatalf("%q names one failure twice", same)
		}
		if first, now, _ := strings.Cut(changed, "; last check: "); strings.HasSuffix(first, "connection refused") &&
			now != "" && !strings.Contains(now, "refused") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q does not name the last failure", changed)
		}
	}
}

// TestEjected: passive checks take a real server out and say until when. Enabling it
// ends that at once.
func TestEjected(t *testing.T) {
	w := newWorld(t)
	var failing atomic.Bool
	healthy := make(chan bool) // receives a value after a read without failures
	failed := uint64(0)
	w.counts = func([]model.VirtualService) (stats.RealCounts, error) {
		if failing.Load() {
			failed += 10
		} else {
			select {
			case healthy <- true:
			default:
			}
		}
		all := stats.RealCounts{}
		all.Add("web", netip.MustParseAddrPort("10.0.0.2:8080"), stats.RealCount{Failed: failed})
		all.Add("web", netip.MustParseAddrPort("10.0.0.3:8080"), stats.RealCount{})
		return all, nil
	}
	w.start()
	for _, c := range []struct {
		check model.Check
		back  string
		until bool
	}{
		{model.Check{Passive: true}, "connections failed; it gets clients again after ", true},
		{model.Check{Passive: true, Type: model.CheckExec, Command: []string{"/bin/true"}, Interval: time.Hour},
			"connections failed; it is back after 2 passed checks", false},
	} {
		v := site("web", at("10.0.0.2", 8080), at("10.0.0.3", 8080))
		v.Plane, v.Check = model.PlaneEBPF, c.check
		w.serve(v)
		failing.Store(true)
		var out api.RealView
		w.until("the first real server is out", func() bool {
			view, err := w.Service("web")
			if err != nil {
				t.Fatal(err)
			}
			out = view.Servers[0]
			return out.State == api.RealDown && view.Servers[1].State == api.RealUp
		})
		failing.Store(false)
		for range 2 { // before the second read, the daemon has handled what the first one shows
			<-healthy
		}
		if !strings.Contains(out.Cause, c.back) || out.Until.After(out.Since) != c.until {
			t.Errorf("%+v", out)
		}
		// A server that is out for a limited time may be back by itself.
		r := w.do(api.EnableReal, "web", "10.0.0.2")
		if back := c.until && time.Now().After(out.Until); !r.Changed && !back ||
			r.Services[0].Servers[0].State != api.RealUp {
			t.Errorf("enabled: %+v", r)
		}
		if r := w.do(api.EnableReal, "web", "10.0.0.2"); r.Changed {
			t.Error("enabling it again has changed something")
		}
	}
}
