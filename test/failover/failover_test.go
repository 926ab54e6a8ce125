package failover_test

import (
	"slices"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/lab/failover"
	"fairlead/internal/model"
)

// planes are the data planes of this kernel.
var planes = []model.Plane{model.PlaneEBPF, model.PlaneNFT}

// service returns a service with frequent checks; a server is down after two failures. A failed
// server refuses connections at once. The timeout allows slow answers on a slow machine.
func service(plane model.Plane) model.VirtualService {
	return model.VirtualService{Plane: plane, Drain: 10 * time.Second,
		Check: model.Check{Type: model.CheckHTTP, Interval: 100 * time.Millisecond, Timeout: 30 * time.Second, Fall: 2,
			Rise: 1}}
}

// TestFailover kills a server, restarts it, and drains another while clients send requests. No
// request that begins after the failed server is removed may fail.
func TestFailover(t *testing.T) {
	for _, plane := range planes {
		t.Run(string(plane), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, service(plane))
			for _, name := range servers {
				w.until(name, api.RealUp)
			}
			asked := w.ask(200)
			_ = w.nginx["a"].Kill() // the exit status only shows that it was killed
			w.until("a", api.RealDown)
			out := time.Now()
			w.change("b", api.DrainReal)
			w.start("a")
			w.until("a", api.RealUp)
			w.answers("a")
			w.change("b", api.EnableReal)
			w.answers("b")
			all := asked.over()
			if o := failover.Judge(after(all, out), failover.Event{At: out}); o.Failed > 0 || o.Asked == 0 {
				t.Errorf("%d of %d requests fail that began after the failed server was removed: %v", o.Failed, o.Asked,
					o.Errors)
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
