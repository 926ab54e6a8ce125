package attack_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/threat"
	"fairlead/test/place"
)

// Each attacker has its own ports for endless exchanges on each path: a datagram of an exchange that
// another attacker has begun would pass as a part of it.
const (
	firstLoopPort = 1000
	// loopWidth is one port per attacker, and one for an honest exchange.
	loopWidth = 6
	// endless is how many times a reflector answers a text.
	endless = 16
)

var loopAttackers = []threat.Attacker{threat.SameNetwork, threat.OtherNetwork, threat.InternalNetwork, threat.LANHost,
	threat.OtherUplink}

// loopPorts returns the ports that are published for one of the driver's two sandboxes with
// reflectors, at the host and in the sandbox.
func loopPorts(d model.Driver, via model.Via, box string) model.PortRange {
	first := firstLoopPort + loopWidth*(int(hostPort(d, via)-8000)/10*2)
	if box == third(d) {
		first += loopWidth
	}
	return model.PortRange{First: uint16(first), Last: uint16(first + loopWidth - 1)}
}

// loopPort returns the attacker's port of loopPorts.
func loopPort(c threat.Cell, via model.Via, box string) uint16 {
	return loopPorts(c.Driver, via, box).First + uint16(slices.Index(loopAttackers, c.Attacker))
}

// loopPublishes returns the publishes of the sandboxes with reflectors.
func loopPublishes(d model.Driver, via model.Via) (all []model.Publish) {
	for _, name := range []string{victim(d), third(d)} {
		ports := loopPorts(d, via, name)
		all = append(all, model.Publish{Endpoint: name, Via: via, Proto: model.UDP, HostPorts: ports, Ports: ports})
	}
	return all
}

// reflector answers each datagram with the same bytes, but not endlessly.
type reflector struct {
	mu   sync.Mutex
	seen map[string]int
	// full is closed when a text has come back endless times.
	full map[string]chan struct{}
}

// reflect starts the reflectors of all paths.
func (w *world) reflect() {
	w.t.Helper()
	w.reflector = &reflector{seen: map[string]int{}, full: map[string]chan struct{}{}}
	for _, d := range w.drivers {
		for _, via := range threat.Vias(d) {
			for _, name := range []string{victim(d), third(d)} {
				ports := loopPorts(d, via, name)
				for i := range ports.Len() {
					if i == loopWidth-1 && name == third(d) {
						continue // for the honest exchange
					}
					c, err := place.ListenPacket(w.host.In(name), fmt.Sprint(":", int(ports.First)+i))
					if err != nil {
						w.t.Fatal(err)
					}
					w.t.Cleanup(func() { c.Close() })
					go w.reflector.serve(c)
				}
			}
		}
	}
}

func (r *reflector) serve(c net.PacketConn) {
	for b := make([]byte, 1<<16); ; {
		n, from, err := c.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && r.again(string(b[:n])) {
			_, _ = c.WriteTo(b[:n], from) // the source may be forged
		}
	}
}

// again counts a datagram and reports whether it is to be answered.
func (r *reflector) again(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[text]++; r.seen[text] == endless {
		close(r.of(text))
	}
	return r.seen[text] < endless
}

// of returns the channel of a text. The caller has the lock.
func (r *reflector) of(text string) chan struct{} {
	if r.full[text] == nil {
		r.full[text] = make(chan struct{})
	}
	return r.full[text]
}

// loops reports whether a text that was sent once comes back endlessly. If no reflector has received
// it yet, it does not.
func (r *reflector) loops(text string) bool {
	r.mu.Lock()
	full, seen := r.of(text), r.seen[text]
	r.mu.Unlock()
	if seen == 0 {
		return false
	}
	select {
	case <-full:
		return true
	case <-time.After(answerTimeout):
		return false
	}
}

// loop sends one datagram to a published port from each address and port of another sandbox that is
// published there in any mode: at the host, and in the sandbox.
func loop(w *world, c threat.Cell, f flavor) result {
	to := netip.AddrPortFrom(w.own(f.v4), loopPort(c, c.Via, victim(c.Driver)))
	attacker, witness := w.from(c.Attacker, c.Driver), w.from(c.Attacker, c.Driver)
	if c.Attacker == threat.InternalNetwork {
		witness = w.client.Do
	}
	sources := []netip.AddrPort{netip.AddrPortFrom(w.address(third(c.Driver), f.v4),
		loopPort(c, c.Via, third(c.Driver)))}
	for _, via := range threat.Vias(c.Driver) {
		sources = append(sources, netip.AddrPortFrom(w.own(f.v4), loopPort(c, via, third(c.Driver))))
	}
	for _, src := range sources {
		text := nonce()
		if err := attacker.send(segment{proto: f.proto, src: src, dst: to, payload: text}.packet()); err != nil {
			return result{err: err}
		}
		// The answer proves that all earlier packets have arrived.
		if err := witness.exchange(to, nonce()); err != nil {
			return result{err: fmt.Errorf("no answer to an honest datagram: %w", err)}
		}
		if w.reflector.loops(text) {
			return result{effect: true, because: "a datagram from " + src.String() + " comes back again and again"}
		}
	}
	return result{because: "no datagram comes back again and again"}
}

// exchange sends a datagram to a reflector and waits until it comes back. It repeats the datagram.
func (p position) exchange(to netip.AddrPort, text string) error {
	return p.exchangeFrom(netip.AddrPort{}, to, text)
}

// exchangeFrom is exchange from an address and port.
func (p position) exchangeFrom(from, to netip.AddrPort, text string) error {
	t, err := p.dial(model.UDP, from, to)
	if err != nil {
		return err
	}
	defer t.Close()
	b := make([]byte, 1<<16)
	for deadline := time.Now().Add(answerTimeout); ; {
		if _, err := t.Write([]byte(text)); err != nil {
			return err
		}
		_ = t.SetReadDeadline(time.Now().Add(answerTimeout / 10))
		n, err := t.Read(b)
		if err == nil && string(b[:n]) == text {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("got %q: %w", b[:n], err)
		}
	}
}

// TestPublishedPortsMayTalk: a sandbox sends datagrams to the published port of another one from a
// port that is itself published, as DNS servers (53) and NTP servers (123) do, and gets answers.
func TestPublishedPortsMayTalk(t *testing.T) {
	w := newWorld(t)
	for _, d := range threat.Drivers() {
		for _, via := range threat.Vias(d) {
			for _, f := range onlyUDP {
				from := netip.AddrPortFrom(w.address(third(d), f.v4), loopPorts(d, via, third(d)).Last)
				to := netip.AddrPortFrom(w.own(f.v4), loopPorts(d, via, victim(d)).Last)
				if err := position(w.host.In(third(d))).exchangeFrom(from, to, nonce()); err != nil {
					t.Errorf("%s %s, %s: from %s to %s: %v", d, via, f, from, to, err)
				}
			}
		}
	}
}
