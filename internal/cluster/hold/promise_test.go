package hold

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/cluster/vip"
)

// silent is a node that does not answer. It counts the requests that are under way.
type silent struct{ asked, running atomic.Int32 }

func (s *silent) Peer(ctx context.Context, _, _ string, _, _ any) error {
	s.asked.Add(1)
	s.running.Add(1)
	<-ctx.Done()
	s.running.Add(-1)
	return ctx.Err()
}

// TestSlowAnswersDelayNoQuestion asks a node again before it has answered. The question must be sent at
// once, and the number of requests is limited.
func TestSlowAnswersDelayNoQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &silent{}
		r := &Runner{cfg: Config{Peers: node}, life: t.Context(), asking: map[string]*questions{}}
		a := &address{addr: netip.MustParseAddr("192.0.2.10")}
		for n := range maxAsking + 2 {
			r.mu.Lock()
			r.ask(a, vip.Ask{Round: int64(n), Nodes: []string{"b"}, Timeout: time.Second})
			r.mu.Unlock()
			synctest.Wait()
			if want, got := min(n+1, maxAsking), int(node.running.Load()); got != want {
				t.Errorf("after %d questions, %d requests are under way, want %d", n+1, got, want)
			}
		}
		r.tasks.Wait()
		if got := node.asked.Load(); got != maxAsking+1 || len(r.asking) != 0 {
			t.Errorf("there were %d requests, want %d: of the questions that wait, the last one counts", got,
				maxAsking+1)
		}
	})
}
