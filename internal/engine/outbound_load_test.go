package engine_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/plan"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// The load of TestOutboundManyFlows: 100,000 exchanges, of which 10,000 go to each port of
// the server.
const (
	loadPorts   = 5_000
	loadServers = 10
	loadFirst   = 20_000 // the first source port of each sandbox
)

// outsidePorts is what the server sees: the port outside of each exchange, per port of the server.
type outsidePorts struct {
	mu     sync.Mutex
	owners map[[2]uint16]owner
	twice  []string
	alien  int
}

// owner is the exchange that has sent from a port last.
type owner struct {
	exchange string
	at       time.Time
}

// saw notes a datagram. A port that another exchange has had within the time for which an
// idle exchange keeps it, less a reserve, is a collision.
func (s *outsidePorts) saw(server uint16, client net.Addr, exchange string) {
	from := client.(*net.UDPAddr).AddrPort()
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.Addr().Unmap() != topology.ServerAddr4 || !plan.IsOutboundPort(from.Port()) {
		s.alien++
	}
	key := [2]uint16{server, from.Port()}
	was, used := s.owners[key]
	if used && was.exchange != exchange && time.Since(was.at) < 25*time.Second {
		s.twice = append(s.twice, fmt.Sprintf("port %d to port %d: %s and %s", from.Port(), server, was.exchange,
			exchange))
	}
	s.owners[key] = owner{exchange, time.Now()}
}

// TestOutboundManyFlows opens 100,000 exchanges at once from two sandboxes that use the same
// source ports. No two share a port outside towards the same port of the server, and none
// loses its answer.
func TestOutboundManyFlows(t *testing.T) {
	w := world(t)
	mustSet(t, w, outside(t, w, "web", "app"))
	s := &outsidePorts{owners: map[[2]uint16]owner{}}
	for n := range loadServers {
		port := uint16(9000 + n)
		place.ServeUDP(t, w.DoClient, fmt.Sprint(":", port), func(datagram []byte, client net.Addr) []byte {
			s.saw(port, client, string(datagram))
			return datagram
		})
	}
	var wg sync.WaitGroup
	for _, name := range []string{"web", "app"} {
		wg.Go(func() {
			err := in(w, name)(func() error {
				for n := range loadPorts {
					if err := askAll(name, uint16(loadFirst+n)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	if len(s.twice) > 0 {
		t.Errorf("%d of %d ports outside are shared: %s", len(s.twice), len(s.owners), s.twice[0])
	}
	if n := len(s.owners); n != 2*loadPorts*loadServers || s.alien > 0 {
		t.Errorf("%d exchanges, %d of which the programs have not translated", n, s.alien)
	}
}

// askAll asks each port of the server from one source port. It returns an error if an answer
// does not come.
func askAll(name string, port uint16) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(place.Timeout.Nanoseconds())
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)}))
	if err != nil {
		return err
	}
	server := netip.MustParseAddrPort(askedServer)
	for n := range loadServers {
		to := &unix.SockaddrInet4{Port: int(server.Port()) + n, Addr: server.Addr().As4()}
		if err := unix.Sendto(fd, fmt.Appendf(nil, "%s %d", name, port), 0, to); err != nil {
			return err
		}
	}
	answered := map[int]bool{}
	for answer := make([]byte, 64); len(answered) < loadServers; {
		n, from, err := unix.Recvfrom(fd, answer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("port %d: %d of %d answers: %w", port, len(answered), loadServers, err)
		}
		if got, want := string(answer[:n]), fmt.Sprint(name, " ", port); got != want {
			return fmt.Errorf("port %d gets the answer of %s", port, got)
		}
		answered[from.(*unix.SockaddrInet4).Port] = true
	}
	return nil
}

// TestOutboundManyConnections opens 50,000 connections to one port of the server, one after
// the other in each of two sandboxes. There are 27,304 ports for it, so ports are used again
// within the minute for which a host outside may remember them, or the kernel forwards. Each
// connection gets its answer.
func TestOutboundManyConnections(t *testing.T) {
	const each = 25_000
	w := world(t)
	mustSet(t, w, outside(t, w, "web", "app"))
	place.Serve(t, w.DoClient, askedServer, place.Echo)
	var wg sync.WaitGroup
	for _, name := range []string{"web", "app"} {
		wg.Go(func() {
			if err := in(w, name)(func() error {
				for n := range each {
					if err := askOnce(fmt.Sprint(name, " ", n)); err != nil {
						return fmt.Errorf("connection %d: %w", n, err)
					}
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

// askOnce opens a connection, waits for the answer to a text, and resets it: if the sandbox
// kept it in TIME_WAIT, its kernel would need ten milliseconds to find a port once half of
// them are used.
func askOnce(text string) error {
	c, err := net.DialTimeout("tcp4", askedServer, place.Timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	answer := make([]byte, len(text))
	if err = c.(*net.TCPConn).SetLinger(0); err != nil {
		return err
	}
	if err = c.SetDeadline(time.Now().Add(place.Timeout)); err == nil {
		_, err = c.Write([]byte(text))
	}
	if err == nil {
		_, err = io.ReadFull(c, answer)
	}
	if err == nil && string(answer) != text {
		err = fmt.Errorf("the answer is %q, want %q", answer, text)
	}
	return err
}
