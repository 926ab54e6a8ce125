package health

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/model"
)

// rack has real servers on two nodes, ten on each. It is made with simulated time (synctest).
type rack struct {
	*Monitor
	mu sync.Mutex
	// silent reports whether a server answers nothing.
	silent func(model.RealServer) bool
	// dialled counts the checks of each server, and first is when a silent one was first dialled.
	dialled map[netip.Addr]int
	first   time.Time
	down    map[netip.Addr]time.Time
}

// inRack runs a test with a monitor that checks the servers of a rack every second. Their nodes are known
// if named is true.
func inRack(t *testing.T, named bool, test func(t *testing.T, r *rack)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rack{silent: func(model.RealServer) bool { return false }, dialled: map[netip.Addr]int{},
			down: map[netip.Addr]time.Time{}}
		r.Monitor = NewMonitor(Options{Dial: r.dial, Changed: r.changed})
		v := farmService("web", 20)
		v.Check = model.Check{Type: model.CheckTCP, Interval: time.Second, Fall: 2}
		for i := range v.Reals {
			v.Reals[i].Endpoint = ""
			if named {
				v.Reals[i].Node = []string{"a", "b"}[i%2]
			}
		}
		if err := r.Set([]model.VirtualService{v}); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		test(t, r)
		cancel()
		<-done
	})
}

func (r *rack) dial(_ model.VirtualService, of model.RealServer) DialFunc {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		r.mu.Lock()
		r.dialled[of.Address]++
		silent := r.silent(of)
		if silent && r.first.IsZero() {
			r.first = time.Now()
		}
		r.mu.Unlock()
		if silent {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		near, far := net.Pipe()
		return near, far.Close()
	}
}

func (r *rack) changed(b Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range b.Changes {
		if c.To == model.RealDown {
			r.down[c.Real.Addr()] = c.At
		}
	}
}

// become changes which servers are silent, and forgets what was counted.
func (r *rack) become(silent func(model.RealServer) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = silent
	clear(r.dialled)
}

// odd reports whether a server is one of the second node, whether or not the node is known.
func odd(of model.RealServer) bool { return of.Address.As4()[3]%2 == 0 }

// TestSilentHost makes all servers of a node silent. Once the check of one of them has no answer for a
// quarter of its timeout, all of them are checked. If their nodes are not known, each waits for its turn.
func TestSilentHost(t *testing.T) {
	for _, named := range []bool{true, false} {
		slower := 0
		for began := range 10 {
			inRack(t, named, func(t *testing.T, r *rack) {
				time.Sleep(20*time.Second + time.Duration(began)*95*time.Millisecond)
				r.become(odd)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(r.down) != 10 {
					t.Errorf("%d servers are down, want 10", len(r.down))
				}
				for _, at := range r.down {
					if at.Sub(r.first) > 1500*time.Millisecond+10*tick {
						slower++
					}
				}
			})
		}
		if named != (slower == 0) {
			t.Errorf("with nodes: %v: %d of 100 servers were down later than after two quarters of the timeout and "+
				"a whole one", named, slower)
		}
	}
}

// TestSilentServerOnHost makes one server of a node silent. The others are up, and not checked much more
// often than before.
func TestSilentServerOnHost(t *testing.T) {
	inRack(t, true, func(t *testing.T, r *rack) {
		time.Sleep(20 * time.Second)
		r.become(func(of model.RealServer) bool { return of.Address == netip.MustParseAddr("192.0.0.2") })
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.down) != 1 {
			t.Errorf("%d servers are down, want 1", len(r.down))
		}
		for at, n := range r.dialled {
			if n < 50 || n > 72 {
				t.Errorf("%s was checked %d times in a minute, want about 60", at, n)
			}
		}
	})
}
