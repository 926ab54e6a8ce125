package health

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/model"
)

// TestAllFailAtOnce checks the panic threshold: if all checks fail within one interval,
// or clients fail at all servers, at least that share of the servers stays in use, with
// or without a sorry server. When checks pass again, their results count again.
func TestAllFailAtOnce(t *testing.T) {
	for _, c := range []struct {
		servers, panic, fall int
		sorry, passive       bool
	}{
		{10, 50, 1, false, false}, {10, 50, 3, false, false}, {10, 1, 1, false, false}, {10, 100, 2, false, false},
		{3, 34, 1, true, false}, {1, 1, 1, true, false}, {10, 50, 3, false, true}, {10, 50, 3, true, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			v := farmService("web", c.servers)
			v.Panic, v.Check.Fall, v.Check.Rise, v.Check.Jitter, v.Check.Passive = c.panic, c.fall, 1, 10, c.passive
			if c.sorry {
				v.Sorry = farmReals(99)[98].At(80)
			}
			p := &planes{t: t, v: v, least: (c.panic*c.servers + 99) / 100}
			synctest.Test(t, func(t *testing.T) {
				f := &farm{began: time.Now(), ill: map[string]bool{}, asked: map[string][]time.Duration{}}
				p.monitor = NewMonitor(Options{Means: Means{Container: f.ask}, Changed: p.changed})
				f.monitor = p.monitor
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go f.monitor.Run(ctx)
				f.mustSet(t, v)
				time.Sleep(3 * time.Second)
				for _, r := range v.Reals {
					f.set(f.ill, r.Endpoint, true)
					f.monitor.Signal("web", r.At(0), Signal{Failed: 9})
				}
				time.Sleep(10 * time.Second)
				if p.mode != ModePanic || p.up != c.servers {
					t.Errorf("all servers fail: %d are in use, and the mode is %q", p.up, p.mode)
				}
				f.set(f.ill, "e1", false)
				time.Sleep(5 * time.Second)
				if well := c.panic <= 100/c.servers; well != (p.mode == "") || well && p.up != 1 {
					t.Errorf("one server is up: %d are in use, and the mode is %q", p.up, p.mode)
				}
			})
		})
	}
}

// planes stands for the data planes: it is notified of all changes.
type planes struct {
	t       *testing.T
	monitor *Monitor
	v       model.VirtualService
	// least is the number of servers that must be in use at any time.
	least, up int
	mode      Mode
}

func (p *planes) changed(Batch) {
	now, status := p.monitor.Effective(p.v)
	p.up, p.mode = 0, status.Mode
	for _, r := range now.Reals {
		if r.State == model.RealUp && slices.ContainsFunc(p.v.Reals,
			func(o model.RealServer) bool { return o.Address == r.Address }) {
			p.up++
		}
	}
	if p.up < p.least {
		p.t.Errorf("%d servers are in use, want at least %d", p.up, p.least)
	}
}
