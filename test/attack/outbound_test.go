package attack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/threat"

	"golang.org/x/sys/unix"
)

// outsidePort is the port on which the client on the LAN listens.
const outsidePort = 9000

// outsideName is the name of that server.
const outsideName = "outside"

// padding is longer than a text, so that the first fragment of a datagram contains it.
const padding = 32

// outgoing is an exchange that the victim has begun with the client on the LAN.
type outgoing struct {
	talk
	// inside is the victim's address and port, outside what the server sees of it.
	inside, outside, server netip.AddrPort
}

// outgoing begins an exchange from the victim's port and waits for the first answer.
func (w *world) outgoing(c threat.Cell, f flavor, port uint16) (o outgoing, err error) {
	o.inside = netip.AddrPortFrom(w.address(victim(c.Driver), f.v4), port)
	o.server = netip.AddrPortFrom(w.client.Address(0, f.v4), outsidePort)
	tap, err := position(w.client.Do).tap()
	if err != nil {
		return o, err
	}
	defer tap.close()
	if o.talk, err = position(w.host.In(victim(c.Driver))).dial(f.proto, o.inside, o.server); err != nil {
		return o, fmt.Errorf("the victim does not reach the LAN even without an attack: %w", err)
	}
	text := nonce()
	if err := o.ask(outsideName, text); err != nil {
		o.Close()
		return o, fmt.Errorf("no answer even without an attack: %w", err)
	}
	if !tap.received(func(frame []byte) bool {
		seen := bytes.Contains(frame, []byte(text))
		if seen {
			o.outside = source(frame)
		}
		return seen
	}) || o.ask(outsideName, nonce()) != nil {
		o.Close()
		return o, errors.New("the server's link has not received the request, or there is no second answer")
	}
	return o, nil
}

// bypass fails the test unless the host's FORWARD rules see nothing of an exchange that has
// been answered.
func (w *world) bypass(c threat.Cell, f flavor) {
	w.t.Helper()
	w.sh(w.host.Do, "nft add table inet counting; nft add chain inet counting forward "+
		"'{ type filter hook forward priority 0; }'; nft add rule inet counting forward counter")
	defer w.sh(w.host.Do, "nft delete table inet counting")
	o, err := w.outgoing(c, f, w.port())
	if err != nil {
		w.t.Fatal(err)
	}
	defer o.Close()
	count := func() string { return w.sh(w.host.Do, "nft list chain inet counting forward") }
	for range 10 {
		before := count()
		if err := o.ask(outsideName, nonce()); err != nil {
			w.t.Fatal(err)
		}
		if count() == before {
			return
		}
	}
	w.t.Fatalf("%s, %s: FORWARD rules see each datagram of an exchange", c.Driver, f)
}

// source returns the source address and port of an IP packet without options in a frame.
func source(frame []byte) netip.AddrPort {
	src, _, ok := ports(frame)
	if !ok {
		return netip.AddrPort{}
	}
	if binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_IP {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(frame[26:])), src)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(frame[22:])), src)
}

// arrived waits until everything that the attacker has sent has arrived, and the victim has
// got an answer.
func (w *world) arrived(c threat.Cell, f flavor, o outgoing) error {
	if err := w.asksHost(w.from(c.Attacker, c.Driver), w.own(f.v4))(); err != nil {
		return err
	}
	return o.ask(outsideName, nonce())
}

// twice returns the datagram as one packet and in two fragments, the first of which has
// padding bytes of the payload.
func (s segment) twice() [][]byte {
	if s.proto == model.TCP {
		return [][]byte{s.packet()}
	}
	number, datagram := s.transport()
	src, dst := s.src.Addr(), s.dst.Addr()
	id := uint16(nonces.Add(1))
	return [][]byte{s.packet(), piece(src, dst, number, id, 0, datagram[:8+padding], true),
		piece(src, dst, number, id, 8+padding, datagram[8+padding:], false)}
}

// targets are the addresses and ports at which an attacker may reach the victim's exchange:
// the one outside, and the victim's, unless both share an Ethernet.
func (o outgoing) targets(c threat.Cell) []netip.AddrPort {
	if c.Attacker == threat.SameNetwork || o.inside == o.outside {
		return []netip.AddrPort{o.outside}
	}
	return []netip.AddrPort{o.outside, o.inside}
}

// overhear sends with the victim's address and port before and during its exchange.
func overhear(w *world, c threat.Cell, f flavor) result {
	attacker := w.from(c.Attacker, c.Driver)
	heard, err := attacker.tap()
	if err != nil {
		return result{err: err}
	}
	defer heard.close()
	port := w.port()
	first := forged(f, netip.AddrPortFrom(w.address(victim(c.Driver), f.v4), port),
		netip.AddrPortFrom(w.client.Address(0, f.v4), outsidePort))
	if err := attacker.send(first, first); err != nil {
		return result{err: err}
	}
	o, err := w.outgoing(c, f, port)
	if err != nil {
		return result{err: err}
	}
	defer o.Close()
	if err := attacker.send(first, first); err != nil {
		return result{err: err}
	}
	text := nonce()
	if err := o.ask(outsideName, text); err != nil {
		return result{err: err}
	}
	return result{effect: heard.received(contains(outsideName + " " + text)), because: "answers to the victim"}
}

// impersonate sends datagrams with the victim's address and port, and with the ones outside.
func impersonate(w *world, c threat.Cell, f flavor) result {
	o, err := w.outgoing(c, f, w.port())
	if err != nil {
		return result{err: err}
	}
	defer o.Close()
	seen, err := position(w.client.Do).tap()
	if err != nil {
		return result{err: err}
	}
	defer seen.close()
	text := nonce()
	var packets [][]byte
	for _, src := range []netip.AddrPort{o.inside, o.outside} {
		packets = append(packets, segment{proto: f.proto, src: src, dst: o.server,
			payload: text + strings.Repeat("x", padding)}.twice()...)
	}
	if err := w.from(c.Attacker, c.Driver).send(packets...); err != nil {
		return result{err: err}
	}
	if err := w.arrived(c, f, o); err != nil {
		return result{err: err}
	}
	return result{effect: seen.received(func(frame []byte) bool {
		return source(frame) == o.outside && bytes.Contains(frame, []byte(text))
	}), because: "a datagram from " + o.outside.String()}
}

// answer sends datagrams with the server's address and port.
func answer(w *world, c threat.Cell, f flavor) result {
	o, err := w.outgoing(c, f, w.port())
	if err != nil {
		return result{err: err}
	}
	defer o.Close()
	for _, to := range o.targets(c) {
		injected := segment{proto: f.proto, src: o.server, dst: to, payload: "injected" + strings.Repeat("x", padding)}
		if err := w.from(c.Attacker, c.Driver).send(injected.twice()...); err != nil {
			return result{err: err}
		}
	}
	return o.outcome(func(err error) bool { return strings.Contains(err.Error(), "injected") })
}

// outcome makes the victim send three more requests. The attack has an effect if one fails
// with such an error.
func (o outgoing) outcome(is func(error) bool) result {
	for range 3 {
		if err := o.ask(outsideName, nonce()); err != nil {
			return result{effect: is(err), because: err.Error(), err: unless(is(err), err)}
		}
	}
	return result{because: "the victim receives only answers"}
}

// breakOff sends ICMP errors that quote the victim's datagram, as it is inside and outside.
func breakOff(w *world, c threat.Cell, f flavor) result {
	o, err := w.outgoing(c, f, w.port())
	if err != nil {
		return result{err: err}
	}
	defer o.Close()
	kind, code := byte(3), byte(3)
	if !f.v4 {
		kind, code = 1, 4
	}
	var errs [][]byte
	for _, quoted := range []netip.AddrPort{o.inside, o.outside} {
		quote := append(make([]byte, 4), segment{proto: f.proto, src: quoted, dst: o.server}.packet()...)
		for _, from := range []netip.Addr{w.source(c.Attacker, c.Driver, f.v4), unusedAddress(f.v4), o.server.Addr(),
			w.own(f.v4)} {
			errs = append(errs, icmp(from, quoted.Addr(), kind, code, quote))
		}
	}
	if err := w.from(c.Attacker, c.Driver).send(errs...); err != nil {
		return result{err: err}
	}
	return o.outcome(func(err error) bool { return errors.Is(err, unix.ECONNREFUSED) })
}

// enter sends first packets to the victim's port from the attacker's address, from one that
// no host has, and from another port of the server.
func enter(w *world, c threat.Cell, f flavor) result {
	o, err := w.outgoing(c, f, w.port())
	if err != nil {
		return result{err: err}
	}
	defer o.Close()
	entered, err := position(w.host.In(victim(c.Driver))).tap()
	if err != nil {
		return result{err: err}
	}
	defer entered.close()
	text := nonce()
	var packets [][]byte
	for _, to := range o.targets(c) {
		for _, from := range []netip.Addr{w.source(c.Attacker, c.Driver, f.v4), unusedAddress(f.v4),
			o.server.Addr()} {
			packets = append(packets, segment{proto: f.proto, src: netip.AddrPortFrom(from, w.port()), dst: to,
				flags: syn, payload: text + strings.Repeat("x", padding)}.twice()...)
		}
	}
	if err := w.from(c.Attacker, c.Driver).send(packets...); err != nil {
		return result{err: err}
	}
	if err := w.arrived(c, f, o); err != nil {
		return result{err: err}
	}
	return result{effect: entered.received(contains(text)), because: "a first packet at " + o.outside.String()}
}

// leak sends with addresses of others, and segments that belong to no connection with the
// attacker's own address.
func leak(w *world, c threat.Cell, f flavor) result {
	o, err := w.outgoing(c, f, w.port())
	if err != nil {
		return result{err: err}
	}
	defer o.Close()
	seen, err := position(w.client.Do).tap()
	if err != nil {
		return result{err: err}
	}
	defer seen.close()
	own := w.source(c.Attacker, c.Driver, f.v4)
	text := nonce()
	var packets [][]byte
	for _, from := range []netip.Addr{own, unusedAddress(f.v4), w.address(third(c.Driver), f.v4),
		w.lan.Address(0, f.v4), w.gateway(victim(c.Driver), f.v4)} {
		for _, flags := range []byte{syn, ack, rst | ack, rst} {
			packets = append(packets, segment{proto: f.proto, src: netip.AddrPortFrom(from, w.port()), dst: o.server,
				flags: flags, payload: text + strings.Repeat("x", padding)}.twice()...)
		}
	}
	if err := w.from(c.Attacker, c.Driver).send(packets...); err != nil {
		return result{err: err}
	}
	if err := w.arrived(c, f, o); err != nil {
		return result{err: err}
	}
	var from netip.AddrPort
	found := seen.received(func(frame []byte) bool {
		foreign := source(frame).Addr() != w.own(f.v4) &&
			(c.Driver != model.DriverRouted || source(frame).Addr() != own)
		if foreign && bytes.Contains(frame, []byte(text)) {
			from = source(frame)
			return true
		}
		return false
	})
	return result{effect: found, because: "a packet from " + from.String()}
}
