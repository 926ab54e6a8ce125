package cluster_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/cluster/record"

	"golang.org/x/sys/unix"
)

// TestMove moves an address several times while a client connects all the time. No connection
// needs a second SYN: what arrives at the earlier holder reaches the next one.
func TestMove(t *testing.T) {
	t.Setenv(alone, "1") // a client repeats a segment if a host is paused for 1 s while it takes the address
	for _, address := range []string{"192.0.2.10/24", "2001:db8::10/64"} {
		t.Run(address, func(t *testing.T) { moves(t, newVirtual(t, address, pauseless)) })
	}
}

func moves(t *testing.T, v *virtual) {
	v.held()
	holder := v.hosts[0]
	for _, h := range []*host{v.hosts[1], holder} { // each takes the address at once when it has run for long enough
		v.hosts[2].Run("cluster", "address", "move", v.addr.String(), h.name)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	var longest time.Duration
	go func() {
		defer close(ended)
		var clients sync.WaitGroup
		var mu sync.Mutex
		defer clients.Wait()
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			clients.Go(func() {
				took, repeated, err := v.attempt()
				mu.Lock()
				defer mu.Unlock()
				longest = max(longest, took)
				if err != nil || repeated > 0 {
					t.Errorf("a connection took %v, with %d repeated segments: %v", took, repeated, err)
				}
			})
		}
	}()
	moves := 5
	for range moves {
		next := v.hosts[0]
		if next == holder {
			next = v.hosts[1]
		}
		id := v.nodeID(next)
		v.change(func(r *record.Address) { r.Target = id })
		v.until("the address has moved", func() bool { return v.answered(time.Second) == next.name })
		holder = next
	}
	close(stop)
	<-ended
	t.Logf("%d moves: the longest attempt took %v", moves, longest)
}

// attempt connects from the client, and reports how long that took and how often a segment was repeated. The host that
// has accepted a connection may reset it before the client runs again, because the address moves. Such a connection was
// established: a host that refuses one sends its reset in answer to the SYN (ECONNREFUSED).
func (v *virtual) attempt() (took time.Duration, repeated uint32, err error) {
	var socket *os.File // the kernel keeps what it knows of a connection that it has reset
	dialer := net.Dialer{Timeout: 10 * time.Second, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			var own int
			if own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				socket = os.NewFile(uintptr(own), "socket")
			}
		}), err)
	}}
	began := time.Now()
	err = v.client.Do(func() error {
		conn, err := dialer.Dial("tcp", netip.AddrPortFrom(v.addr, 80).String())
		if err == nil {
			defer conn.Close()
		}
		return err
	})
	took = time.Since(began)
	if socket == nil {
		return took, 0, err
	}
	defer socket.Close()
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) { // the latter if the host has sent its FIN
		err = nil
	}
	return took, repeatedOf(socket), err
}
