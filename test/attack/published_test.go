package attack_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/threat"

	"golang.org/x/sys/unix"
)

// at returns the host's address and port at which the cell's victim is published.
func (w *world) at(c threat.Cell, f flavor) netip.AddrPort {
	return netip.AddrPortFrom(w.own(f.v4), hostPort(c.Driver, c.Via))
}

// forged returns a first packet with a source address that may be another host's.
func forged(f flavor, src, dst netip.AddrPort) []byte {
	return segment{proto: f.proto, src: src, dst: dst, flags: syn, seq: 0x1234567,
		payload: payload(f, "forged")}.packet()
}

// payload returns the text of a datagram; a SYN has none.
func payload(f flavor, text string) string {
	if f.proto == model.TCP {
		return ""
	}
	return text
}

// answers returns the condition that a frame is for the given port and comes from the published
// port or the container's.
func answers(c threat.Cell, port uint16) func([]byte) bool {
	return func(frame []byte) bool {
		src, dst, ok := ports(frame)
		return ok && dst == port && (src == hostPort(c.Driver, c.Via) || src == workPort)
	}
}

// ports returns the source and destination port of an IP packet without options in a frame.
func ports(frame []byte) (src, dst uint16, ok bool) {
	at := map[uint16]int{unix.ETH_P_IP: 14 + 20, unix.ETH_P_IPV6: 14 + 40}
	if len(frame) < 14 {
		return 0, 0, false
	}
	i, isIP := at[binary.BigEndian.Uint16(frame[12:])]
	if !isIP || len(frame) < i+4 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint16(frame[i:]), binary.BigEndian.Uint16(frame[i+2:]), true
}

// impersonate makes the attacker send first packets with another host's address and port. That host
// then sends a request from the same port. impersonate returns whether the attacker has received an
// answer, and the error of the other host's request.
func (w *world) impersonate(c threat.Cell, f flavor, who position, as, from netip.Addr, to netip.AddrPort) (seen bool,
	denied, err error) {
	attacker := w.from(c.Attacker, c.Driver)
	tap, err := attacker.tap()
	if err != nil {
		return false, nil, err
	}
	defer tap.close()
	port := w.port()
	first := forged(f, netip.AddrPortFrom(as, port), w.at(c, f))
	if err := attacker.send(first, first, first); err != nil {
		return false, nil, err
	}
	denied = who.converse(f.proto, netip.AddrPortFrom(from, port), to, victim(c.Driver), nonce())
	return tap.received(answers(c, port)), denied, nil
}

// hijack sends a request with the address of a client on the LAN, and reports whether the attacker
// receives the answers.
func hijack(w *world, c threat.Cell, f flavor) result {
	client := w.client.Address(0, f.v4)
	for range tries() {
		seen, denied, err := w.impersonate(c, f, w.client.Do, client, client, w.at(c, f))
		if err != nil || seen {
			return result{effect: seen, because: fmt.Sprintf("the attacker receives an answer; the client: %v", denied),
				err: err}
		}
	}
	return result{because: "the attacker receives no answer"}
}

// block sends more requests with the address of a client on the LAN, which then sends requests from
// some of the same ports.
func block(w *world, c threat.Cell, f flavor) result {
	const ports = 30
	client := w.client.Address(0, f.v4)
	attacker := w.from(c.Attacker, c.Driver)
	for range tries() {
		var burst [][]byte
		used := []uint16{w.port(), w.port()}
		for n := range ports {
			port := uint16(60000 + n) // no client uses these
			if n < len(used) {
				port = used[n]
			}
			burst = append(burst, forged(f, netip.AddrPortFrom(client, port), w.at(c, f)))
		}
		if err := attacker.send(burst...); err != nil {
			return result{err: err}
		}
		for _, port := range used {
			if err := position(w.client.Do).converse(f.proto, netip.AddrPortFrom(client, port), w.at(c, f),
				victim(c.Driver), nonce()); err != nil {
				return result{effect: true, because: err.Error()}
			}
		}
	}
	return result{because: "the client receives answers"}
}

// blockNeighbor sends requests with the address of a container that connects to another container
// of its network, directly at its address.
func blockNeighbor(w *world, c threat.Cell, f flavor) result {
	neighbor := w.address(evil(c.Driver), f.v4)
	to := netip.AddrPortFrom(w.address(victim(c.Driver), f.v4), workPort)
	for range tries() {
		seen, denied, err := w.impersonate(c, f, w.host.In(evil(c.Driver)), neighbor, neighbor, to)
		if err != nil || seen || denied != nil {
			return result{effect: err == nil,
				because: fmt.Sprintf("the attacker receives an answer: %v; the neighbour: %v", seen, denied), err: err}
		}
	}
	return result{because: "the neighbour receives answers"}
}

// blockLoopback sends requests with the host's address and with its loopback address.
func blockLoopback(w *world, c threat.Cell, f flavor) result {
	loopback := map[bool]netip.Addr{true: netip.AddrFrom4([4]byte{127, 0, 0, 1}), false: netip.IPv6Loopback()}[f.v4]
	to := netip.AddrPortFrom(loopback, hostPort(c.Driver, c.Via))
	for range tries() {
		for _, as := range []netip.Addr{loopback, w.own(f.v4)} {
			// ebpf does not redirect sockets that are bound to the loopback address.
			seen, denied, err := w.impersonate(c, f, w.host.Do, as, unspecified(f.v4), to)
			if err != nil || seen || denied != nil {
				return result{effect: err == nil,
					because: fmt.Sprintf("the attacker receives an answer: %v; the process: %v", seen, denied),
					err:     err}
			}
		}
	}
	return result{because: "the process receives answers"}
}

func unspecified(v4 bool) netip.Addr {
	if v4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// anySource sends a request from an address that only the attacker's loopback has.
func anySource(w *world, c threat.Cell, f flavor) result {
	from := netip.AddrPortFrom(unusedAddress(f.v4), 0)
	err := w.from(c.Attacker, c.Driver).converse(f.proto, from, w.at(c, f), victim(c.Driver), nonce())
	return result{effect: err == nil, because: fmt.Sprint(err)}
}

// live opens a conversation of a client on the LAN and waits for the first answer.
func (w *world) live(c threat.Cell, f flavor) (t talk, port uint16, err error) {
	port = w.port()
	t, err = position(w.client.Do).dial(f.proto, netip.AddrPortFrom(w.client.Address(0, f.v4), port), w.at(c, f))
	if err != nil {
		return t, port, err
	}
	if err := t.ask(victim(c.Driver), nonce()); err != nil {
		t.Close()
		return t, port, fmt.Errorf("no answer even without an attack: %w", err)
	}
	return t, port, nil
}

// inject sends datagrams to a client's socket with the source addresses of the container and of the
// published port.
func inject(w *world, c threat.Cell, f flavor) result {
	for range tries() {
		t, port, err := w.live(c, f)
		if err != nil {
			return result{err: err}
		}
		defer t.Close()
		client := netip.AddrPortFrom(w.client.Address(0, f.v4), port)
		for _, src := range []netip.AddrPort{netip.AddrPortFrom(w.address(victim(c.Driver), f.v4), workPort),
			w.at(c, f)} {
			if err := w.from(c.Attacker, c.Driver).send(segment{proto: f.proto, src: src, dst: client,
				payload: "injected"}.packet()); err != nil {
				return result{err: err}
			}
		}
		for range 3 {
			if err := t.ask(victim(c.Driver), nonce()); err != nil {
				return result{effect: strings.Contains(err.Error(), "injected"), because: err.Error(),
					err: unless(strings.Contains(err.Error(), "injected"), err)}
			}
		}
	}
	return result{because: "the client receives only answers"}
}

// unless returns the error if the condition is false.
func unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

// hostSource sends a request with the host's address as the source.
func hostSource(w *world, c threat.Cell, f flavor) result {
	attacker := w.from(c.Attacker, c.Driver)
	tap, err := attacker.tap()
	if err != nil {
		return result{err: err}
	}
	defer tap.close()
	port := w.port()
	first := forged(f, netip.AddrPortFrom(w.own(f.v4), port), w.at(c, f))
	if err := attacker.send(first, first, first); err != nil {
		return result{err: err}
	}
	// The answer proves that all earlier packets have arrived.
	if err := attacker.converse(f.proto, netip.AddrPort{}, w.at(c, f), victim(c.Driver), nonce()); err != nil {
		return result{err: fmt.Errorf("the attacker receives no answer at its own address: %w", err)}
	}
	return result{effect: tap.received(answers(c, port)), because: "answers to the host's own address"}
}

// forgeError sends ICMP errors that quote a client's conversation, with the addresses that the
// client, the host and the container use.
func forgeError(w *world, c threat.Cell, f flavor) result {
	t, port, err := w.live(c, f)
	if err != nil {
		return result{err: err}
	}
	defer t.Close()
	client := netip.AddrPortFrom(w.client.Address(0, f.v4), port)
	box := netip.AddrPortFrom(w.address(victim(c.Driver), f.v4), workPort)
	kind, code := byte(3), byte(3)
	if !f.v4 {
		kind, code = 1, 4
	}
	var errs [][]byte
	for _, to := range []netip.AddrPort{box, w.at(c, f)} {
		quote := append(make([]byte, 4), segment{proto: f.proto, src: client, dst: to}.packet()...)
		for _, from := range []netip.Addr{w.source(c.Attacker, c.Driver, f.v4), unusedAddress(f.v4), box.Addr(),
			w.own(f.v4)} {
			errs = append(errs, icmp(from, client.Addr(), kind, code, quote))
		}
	}
	if err := w.from(c.Attacker, c.Driver).send(errs...); err != nil {
		return result{err: err}
	}
	for range 3 {
		if err := t.ask(victim(c.Driver), nonce()); err != nil {
			refused := errors.Is(err, unix.ECONNREFUSED)
			return result{effect: refused, because: err.Error(), err: unless(refused, err)}
		}
	}
	return result{because: "the client receives answers"}
}

// flood sends SYNs from many ports while clients on the LAN are idle.
func flood(w *world, c threat.Cell, f flavor) result {
	var idle []talk
	for range 3 {
		t, _, err := w.live(c, f)
		if err != nil {
			return result{err: err}
		}
		defer t.Close()
		idle = append(idle, t)
	}
	attacker := w.from(c.Attacker, c.Driver)
	own := w.source(c.Attacker, c.Driver, f.v4)
	var burst [][]byte
	for n := range 500 * tries() {
		burst = append(burst, forged(f, netip.AddrPortFrom(own, uint16(1024+n)), w.at(c, f)))
	}
	if err := attacker.send(burst...); err != nil {
		return result{err: err}
	}
	for _, t := range idle {
		if err := t.ask(victim(c.Driver), nonce()); err != nil {
			return result{effect: true, because: err.Error()}
		}
	}
	return result{because: "idle connections still work"}
}
