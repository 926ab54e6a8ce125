package proxy

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// TestOutOfFiles checks that without free descriptors new clients are reset or wait,
// and that open connections continue. When descriptors are free again, clients are
// served.
func TestOutOfFiles(t *testing.T) {
	p := newProxy(t, Role)
	set(t, p, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", echo)))
	first := dial(t, "127.0.0.1:8001")
	exchange(t, first, "room enough")
	few := unix.Rlimit{Cur: 32, Max: 32}
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	var crowd []net.Conn
	for range 100 {
		c, err := net.Dial("tcp", "127.0.0.1:8001")
		if err != nil {
			continue // the backlog of a paused listener may be full
		}
		crowd = append(crowd, c)
	}
	exchange(t, first, "still here")
	for _, c := range crowd {
		c.Close()
	}
	until(t, p, "the other clients to disconnect", func(s model.ProxyStats) bool { return s.Connections == 1 })
	exchange(t, dial(t, "127.0.0.1:8001"), "accepted again")
}

// TestChurn adds and removes listeners under load: streams that move between workers,
// and short connections. Nothing may leak, and the port that is never removed must
// never fail.
func TestChurn(t *testing.T) {
	p := newProxy(t, Role)
	target := serveTCP(t, "127.0.0.1", echo)
	stays, goes := published(model.TCP, "127.0.0.1", 8001, target), published(model.TCP, "127.0.0.1", 8002, target)
	set(t, p, Config{Listeners: []plan.Listener{stays}})
	var stop atomic.Bool
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() { echoBlocks(t, "127.0.0.1:8001", &stop, true) })
		load.Go(func() { echoBlocks(t, "127.0.0.1:8002", &stop, false) })
	}
	for range 20 {
		set(t, p, Config{Listeners: []plan.Listener{stays, goes}})
		time.Sleep(3 * time.Millisecond) // let load build up; proves nothing
		set(t, p, Config{Listeners: []plan.Listener{stays},
			Reservations: []plan.Reservation{reserved(model.TCP, "0.0.0.0", 8002)}})
	}
	stop.Store(true)
	load.Wait()
	until(t, p, "everything to end", func(s model.ProxyStats) bool { return s.Connections == 0 })
}

// echoBlocks connects, sends a large block through an echo and closes, again
// and again.
func echoBlocks(t *testing.T, addr string, stop *atomic.Bool, must bool) {
	block := make([]byte, 1<<20)
	for !stop.Load() {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			go func() { _, _ = c.Write(block) }()
			_, err = io.ReadFull(c, make([]byte, len(block)))
			c.Close()
		}
		if err != nil && must {
			t.Errorf("stream through %s: %v", addr, err)
			return
		}
	}
}
