package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/model"
)

// farm is a fake container engine with the containers "e1", "e2" and so on. Tests set
// their health. It records when it was asked.
type farm struct {
	mu    sync.Mutex
	began time.Time
	ill   map[string]bool
	hangs map[string]bool
	asked map[string][]time.Duration
	// busy is the number of requests in progress, and most the largest number at the
	// same time.
	busy, most int
	// reported lists the changes with their times.
	reported []string
	monitor  *Monitor
}

// inFarm runs a test with a monitor that asks a farm, with simulated time (synctest).
func inFarm(t *testing.T, inFlight int, test func(t *testing.T, f *farm)) {
	synctest.Test(t, func(t *testing.T) {
		f := &farm{began: time.Now(), ill: map[string]bool{}, hangs: map[string]bool{},
			asked: map[string][]time.Duration{}}
		f.monitor = NewMonitor(Options{Means: Means{Container: f.ask}, Changed: f.changed, InFlight: inFlight})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.monitor.Run(ctx)
		}()
		test(t, f)
		cancel()
		<-done
	})
}

func (f *farm) ask(ctx context.Context, endpoint string) (bool, string, error) {
	f.mu.Lock()
	f.asked[endpoint] = append(f.asked[endpoint], time.Since(f.began))
	f.busy++
	f.most = max(f.most, f.busy)
	ill, hangs := f.ill[endpoint], f.hangs[endpoint]
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		ill = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	return !ill, "as set", nil
}

func (f *farm) changed(b Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Since(f.began).Round(10 * time.Millisecond)
	for _, c := range b.Changes {
		f.reported = append(f.reported, fmt.Sprintf("%s %s %s %q→%q %s", at, c.Service, c.Endpoint, c.From, c.To,
			c.Cause))
	}
	for _, p := range b.Pools {
		f.reported = append(f.reported, fmt.Sprintf("%s %s pool %q→%q %d/%d", at, p.Service, p.From, p.To.Mode, p.To.Up,
			p.To.Of))
	}
	if len(b.Changes)+len(b.Pools) == 0 {
		for _, s := range b.Services {
			v := model.VirtualService{Name: s, Check: model.Check{SlowStart: 1}, Reals: farmReals(2)}
			f.reported = append(f.reported, fmt.Sprintf("%s %s weight %d", at, s, inUse(f.monitor, v).Reals[0].Weight))
		}
	}
}

func (f *farm) set(what map[string]bool, endpoint string, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what[endpoint] = yes
}

// notify returns the changes since the last call.
func (f *farm) notify() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.Join(f.reported, "\n")
	f.reported = nil
	return text
}

func (f *farm) times(endpoint string) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked[endpoint])
}

func farmReals(n int) []model.RealServer {
	var all []model.RealServer
	for i := range n {
		all = append(all, model.RealServer{Address: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i + 1)}),
			Weight: 1, Endpoint: fmt.Sprintf("e%d", i+1)})
	}
	return all
}

func farmService(name string, n int) model.VirtualService {
	return model.VirtualService{Name: name, Proto: model.TCP, Ports: []model.PortRange{model.Port(80)},
		Reals: farmReals(n),
		Check: model.Check{Type: model.CheckDocker, Interval: time.Second, Jitter: -1}}
}

func (f *farm) mustSet(t *testing.T, services ...model.VirtualService) {
	t.Helper()
	if err := f.monitor.Set(services); err != nil {
		t.Error(err)
	}
}

func (f *farm) wantNotified(t *testing.T, want ...string) {
	t.Helper()
	if got := f.notify(); got != strings.Join(want, "\n") {
		t.Errorf("reported:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func TestMonitor(t *testing.T) {
	inFarm(t, 0, func(t *testing.T, f *farm) {
		v := farmService("web", 2)
		v.Check.SlowStart = 3 * time.Second
		f.mustSet(t, v)
		time.Sleep(4*time.Second + 500*time.Millisecond)
		f.wantNotified(t)
		f.set(f.ill, "e1", true)
		time.Sleep(4 * time.Second)
		f.wantNotified(t, `7s web e1 ""→"down" 3 checks failed: as set`)
		if got := inUse(f.monitor, v).Reals[0].State; got != model.RealDown {
			t.Errorf("the state is %q", got)
		}
		f.set(f.ill, "e2", true)
		time.Sleep(3 * time.Second)
		f.wantNotified(t, `11.01s web e2 ""→"down" 3 checks failed: as set`, `11.01s web pool ""→"empty" 0/2`)
		f.set(f.ill, "e1", false)
		time.Sleep(5 * time.Second)
		f.wantNotified(t, `13s web e1 "down"→"" 2 checks passed: as set`, `13s web pool "empty"→"" 1/2`,
			`14s web weight 50`, `15s web weight 75`, `16s web weight 100`)
		s := f.monitor.StatusOf(v)
		one := s.Servers[1]
		if s.Up != 1 || s.Of != 2 || one.State != model.RealDown || one.Detail != "as set" || one.OK ||
			one.Checked.IsZero() || one.Endpoint != "e2" {
			t.Errorf("the status is %+v", s)
		}
		if c := f.monitor.Counters(); c.Checks != 34 || c.Failed != 15 || c.InFlight != 0 || c.Waiting != 0 {
			t.Errorf("the counters are %+v", c)
		}
		if all := f.monitor.Status(); len(all) != 1 || all[0].Service != "web" {
			t.Errorf("Status returns %+v", all)
		}
	})
}

// TestMonitorKeeps checks that a service that is set again keeps its state and its
// schedule.
func TestMonitorKeeps(t *testing.T) {
	inFarm(t, 0, func(t *testing.T, f *farm) {
		web, mail := farmService("web", 1), farmService("mail", 1)
		mail.Reals[0].Endpoint = "e9"
		f.set(f.ill, "e1", true)
		f.mustSet(t, web)
		time.Sleep(1500 * time.Millisecond)
		f.wantNotified(t, `0s web e1 ""→"down" first check: as set`, `0s web pool ""→"empty" 0/1`)
		f.mustSet(t, mail, web)
		web.Reals[0].Weight, web.Quorum = 7, 2
		f.mustSet(t, web, mail)
		time.Sleep(time.Second)
		if got := f.times("e1"); !slices.Equal(got, []time.Duration{0, time.Second, 2 * time.Second}) {
			t.Errorf("web was checked at %v", got)
		}
		web.Check.Interval = 5 * time.Second
		f.mustSet(t, web, mail)
		time.Sleep(time.Second)
		if got := f.times("e1"); !slices.Equal(got[3:], []time.Duration{2500 * time.Millisecond}) {
			t.Errorf("after the change of its check, web was checked at %v", got)
		}
		f.wantNotified(t)
		f.mustSet(t, mail)
		time.Sleep(20*time.Second + 200*time.Millisecond)
		if got := f.times("e1"); len(got) != 4 {
			t.Errorf("the removed service was checked at %v", got)
		}
		if got := f.times("e9"); len(got) != 23 {
			t.Errorf("mail was checked %d times", len(got))
		}
	})
}

// TestMonitorAddedServers checks that a server that is added to a service is down until
// its first check, which runs at once. Another endpoint at the same address is a new
// server.
func TestMonitorAddedServers(t *testing.T) {
	inFarm(t, 0, func(t *testing.T, f *farm) {
		v := farmService("web", 1)
		f.mustSet(t, v)
		time.Sleep(time.Second)
		v = farmService("web", 2)
		f.mustSet(t, v)
		if got := inUse(f.monitor, v).Reals[1].State; got != model.RealDown {
			t.Errorf("an added server is %q", got)
		}
		time.Sleep(50 * time.Millisecond)
		f.wantNotified(t, `1s web e2 "down"→"" first check: as set`)
		v.Reals[0].Endpoint = "" // unknown for a while
		f.mustSet(t, v)
		if got := inUse(f.monitor, v).Reals[0].State; got != model.RealUp {
			t.Errorf("with an unknown endpoint it is %q", got)
		}
		v.Reals[0].Endpoint = "e7"
		f.set(f.ill, "e7", true)
		f.mustSet(t, v)
		time.Sleep(50 * time.Millisecond)
		f.wantNotified(t)
		if got := inUse(f.monitor, v).Reals[0].State; got != model.RealDown {
			t.Errorf("another container is %q", got)
		}
		v.Reals = append(v.Reals, model.RealServer{Select: model.Select{Name: "web-*"}})
		f.mustSet(t, v)
		if got := inUse(f.monitor, v).Reals[2]; got != v.Reals[2] {
			t.Errorf("a selector became %+v", got)
		}
	})
}

// TestMonitorSpreads checks that first checks are spread over the interval.
func TestMonitorSpreads(t *testing.T) {
	inFarm(t, 0, func(t *testing.T, f *farm) {
		f.mustSet(t, farmService("web", 200))
		f.mustSet(t, farmService("web", 1000))
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if n := f.monitor.Counters().Checks; n < 450 || n > 600 {
			t.Errorf("after half an interval, %d of 1000 servers are checked", n)
		}
	})
}

// TestMonitorBounds checks that the number of concurrent checks is limited, and that
// servers that are down and do not answer do not delay the checks of others.
func TestMonitorBounds(t *testing.T) {
	inFarm(t, 8, func(t *testing.T, f *farm) {
		v := farmService("web", 100)
		for i := range 60 {
			f.hangs[fmt.Sprintf("e%d", i+1)] = true
		}
		f.mustSet(t, v)
		time.Sleep(time.Minute)
		began := len(f.times("e100"))
		time.Sleep(10 * time.Second)
		if n := len(f.times("e100")) - began; n < 9 {
			t.Errorf("a server that is up was checked %d times in 10 s", n)
		}
		if n := len(f.times("e1")); n < 3 {
			t.Errorf("a server that is down was checked %d times", n)
		}
		if c := f.monitor.Counters(); f.most > 8 || c.InFlight > 4 || c.Waiting > 60 {
			t.Errorf("at most %d checks in parallel, counters %+v", f.most, c)
		}
	})
}

// TestMonitorRestart checks that a new monitor starts with the states of the previous
// one.
func TestMonitorRestart(t *testing.T) {
	var was Snapshot
	v := farmService("web", 2)
	inFarm(t, 0, func(t *testing.T, f *farm) {
		f.set(f.ill, "e1", true)
		f.mustSet(t, v)
		time.Sleep(5 * time.Second)
		was = f.monitor.Export()
	})
	inFarm(t, 0, func(t *testing.T, f *farm) {
		f.set(f.ill, "e1", true)
		f.set(f.ill, "e2", true)
		f.monitor.Import(was, nil)
		more := farmService("web", 3)
		f.mustSet(t, more)
		reals := inUse(f.monitor, more).Reals
		if reals[0].State != model.RealDown || reals[1].State != model.RealUp || reals[2].State != model.RealDown {
			t.Errorf("the new monitor begins with %+v", reals)
		}
		time.Sleep(1500 * time.Millisecond)
		f.wantNotified(t, `10ms web e3 "down"→"" first check: as set`)
		time.Sleep(time.Second)
		f.wantNotified(t, `2.01s web e2 ""→"down" 3 checks failed: as set`)
	})
	inFarm(t, 0, func(t *testing.T, f *farm) {
		f.monitor.Import(was, nil)
		time.Sleep(3 * time.Minute)
		f.mustSet(t, v)
		if got := inUse(f.monitor, v).Reals[0].State; got != model.RealUp {
			t.Errorf("some minutes later, a server begins as %q", got)
		}
	})
}

func TestMonitorSignals(t *testing.T) {
	inFarm(t, 0, func(t *testing.T, f *farm) {
		v := farmService("web", 2)
		v.Check, v.Panic = model.Check{Passive: true}, 60
		f.mustSet(t, v)
		at := v.Reals[0].At(0)
		f.monitor.Signal("web", at, Signal{Failed: 9})
		f.monitor.Signal("web", netip.MustParseAddrPort("192.0.2.9:1"), Signal{Failed: 9})
		f.monitor.Signal("mail", at, Signal{Failed: 9})
		synctest.Wait()
		f.wantNotified(t, `0s web e1 ""→"down" clients: 9 of 9 connections failed; it gets clients again after 2s`,
			`0s web pool ""→"panic" 1/2`)
		time.Sleep(3 * time.Second)
		f.wantNotified(t, `2s web e1 "down"→"" the time after failed connections is over`, `2s web pool "panic"→"" 2/2`)
		f.monitor.Signal("web", at, Signal{Failed: 5})
		if s := f.monitor.StatusOf(v).Servers[0]; time.Until(s.Until) != 4*time.Second {
			t.Errorf("the server gets clients again at %s", s.Until)
		}
		if !f.monitor.Readmit("web", at) || f.monitor.Readmit("web", at) || f.monitor.Readmit("mail", at) {
			t.Error("Readmit returns false, or true a second time")
		}
		if s := f.monitor.StatusOf(v).Servers[0]; s.State != model.RealUp || !s.Until.IsZero() {
			t.Errorf("after Readmit, the status is %+v", s)
		}
	})
}

// TestLastOfAll checks that clients' failures do not take the last server down, unless
// a check finds out when it is available again, or a sorry server replaces it.
func TestLastOfAll(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*model.VirtualService)
		ejected bool
	}{
		{"nothing else", func(*model.VirtualService) {}, false},
		{"a check", func(v *model.VirtualService) { v.Check.Type = model.CheckDocker }, true},
		{"a sorry server", func(v *model.VirtualService) { v.Sorry = farmReals(9)[8].At(80) }, true},
		{"another", func(v *model.VirtualService) { v.Reals[1].State = model.RealUp }, true},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			m := NewMonitor(Options{Means: Means{Container: (&farm{}).ask}})
			v := farmService("web", 2)
			v.Check = model.Check{Passive: true}
			v.Reals[1].State = model.RealDown
			c.change(&v)
			if err := m.Set([]model.VirtualService{v}); err != nil {
				t.Fatal(err)
			}
			m.Signal("web", v.Reals[0].At(0), Signal{Failed: 9})
			if ejected := m.StatusOf(v).Servers[0].State == model.RealDown; ejected != c.ejected {
				t.Errorf("the last server is down: %t", ejected)
			}
		})
	}
}

// TestMonitorUnchecked checks that Set returns an error for a service whose check
// cannot be created, and that its servers are up. Servers whose check is removed are up
// again.
func TestMonitorUnchecked(t *testing.T) {
	m := NewMonitor(Options{})
	v := farmService("web", 1)
	if err := m.Set([]model.VirtualService{v}); err == nil ||
		!strings.Contains(err.Error(), "service web: check docker: no container engine") {
		t.Errorf("the error is %v", err)
	}
	if got := inUse(m, v).Reals[0].State; got != model.RealUp {
		t.Errorf("it is %q", got)
	}
	inFarm(t, 0, func(t *testing.T, f *farm) {
		f.set(f.ill, "e1", true)
		f.mustSet(t, v)
		time.Sleep(1500 * time.Millisecond)
		f.notify()
		f.set(f.hangs, "e1", true)
		time.Sleep(time.Second)
		v.Check = model.Check{}
		f.mustSet(t, v)
		time.Sleep(time.Minute)
		f.wantNotified(t, `2.5s web e1 "down"→"" the time after failed connections is over`,
			`2.5s web pool "empty"→"" 1/1`)
		if n := len(f.times("e1")); n != 3 {
			t.Errorf("the server was checked %d times", n)
		}
	})
}

// TestMonitorDials checks that checks use the caller's dialer, with the port to check.
// An agent's advice in the snapshot is ignored if the service has no agent.
func TestMonitorDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialled []string
		m := NewMonitor(Options{Dial: func(v model.VirtualService, r model.RealServer) DialFunc {
			return func(_ context.Context, network, address string) (net.Conn, error) {
				dialled = append(dialled, v.Name+" "+r.Endpoint+" "+network+" "+address)
				near, far := net.Pipe()
				return near, far.Close()
			}
		}})
		v := farmService("web", 1)
		v.Check = model.Check{Type: model.CheckTCP}
		v.Reals[0].Port = 8080
		m.Import(Snapshot{{Service: "web", Real: v.Reals[0].At(0), Endpoint: "e1",
			Record: Record{Up: true, Known: true, Said: Advice{Admin: "drain"}}}}, nil)
		for _, port := range []uint16{0, 9000} {
			v.Check.Port = port
			if err := m.Set([]model.VirtualService{v}); err != nil {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		m.Run(ctx)
		if !slices.Equal(dialled, []string{"web e1 tcp 192.0.0.1:9000"}) || inUse(m, v).Reals[0].State != model.RealUp {
			t.Errorf("the check dialled %q", dialled)
		}
	})
}

// TestQueue checks that checks of servers that are down, and commands, get only a share
// of the checks in progress.
func TestQueue(t *testing.T) {
	q := newQueue(4)
	of := &service{}
	for i := range 10 {
		q.add(&attempt{of: &server{of: of, rec: Record{Known: true}}, moot: i == 0})
	}
	first := q.take()
	if n := 1 + drain(&q); n != 2 {
		t.Errorf("of 4 checks, %d are of servers that are down", n)
	}
	for range 10 {
		q.add(&attempt{of: &server{of: of}})
	}
	if n := drain(&q); n != 2 || q.len() != 15 {
		t.Errorf("of the other 2 checks, %d may begin, and %d wait", n, q.len())
	}
	q.done(first)
	if c := q.take(); c == nil || c.class != ordinary {
		t.Errorf("the first check is not of a server that is up: %+v", c)
	}
}

// drain takes all checks that may start, and returns their number.
func drain(q *queue) int {
	n := 0
	for q.take() != nil {
		n++
	}
	return n
}

// TestMonitorCallsBack checks that the callback for a change may call Status and Set.
func TestMonitorCallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := farmService("web", 1)
		var m *Monitor
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m = NewMonitor(Options{Means: Means{Container: func(context.Context, string) (bool, string,
			error) {
			return false, "", nil
		}}, Changed: func(Batch) {
			m.Effective(v)
			m.Status()
			if err := m.Set(nil); err != nil {
				t.Error(err)
			}
			cancel()
		}})
		if err := m.Set([]model.VirtualService{v}); err != nil {
			t.Error(err)
		}
		m.Run(ctx)
		if len(m.Status()) != 0 {
			t.Error("the service was not removed")
		}
	})
}

// TestMonitorVoid checks that a check is void if the container engine returns an error.
func TestMonitorVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMonitor(Options{Means: Means{Container: func(context.Context, string) (bool, string,
			error) {
			return false, "", errors.New("gone")
		}}})
		v := farmService("web", 1)
		if err := m.Set([]model.VirtualService{v}); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m.Run(ctx)
		if c := m.Counters(); c.Void != c.Checks || c.Checks < 59 || inUse(m, v).Reals[0].State != model.RealUp {
			t.Errorf("the counters are %+v", c)
		}
	})
}

// inUse returns the service as the data planes must have it.
func inUse(m *Monitor, v model.VirtualService) model.VirtualService {
	v, _ = m.Effective(v)
	return v
}

// TestMonitorHolds checks that during a Hold new servers are not checked, and that the
// checks of existing servers continue.
func TestMonitorHolds(t *testing.T) {
	inFarm(t, 0, func(t *testing.T, f *farm) {
		old, fresh := farmService("old", 1), farmService("web", 2)
		old.Reals[0].Endpoint = "old"
		f.mustSet(t, old)
		inner, outer := f.monitor.Hold(), f.monitor.Hold()
		f.mustSet(t, old, fresh)
		inner()
		time.Sleep(time.Minute)
		if len(f.times("e1")) != 0 || len(f.times("old")) < 50 {
			t.Errorf("e1 was checked at %v, and old at %v", f.times("e1"), f.times("old"))
		}
		outer()
		synctest.Wait()
		if len(f.times("e1")) != 1 {
			t.Errorf("e1 was checked at %v", f.times("e1"))
		}
	})
}
