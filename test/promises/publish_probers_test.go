package promises_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"fairlead/internal/lab/topology"
	"fairlead/internal/promise"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// publishProbers tests each promise of a publish with packets.
var publishProbers = map[promise.Question]prober{
	promise.LAN:             {flavors, probeReach(lan, serverAddr)},
	promise.HostAddress:     {flavors, probeReach(host, serverAddr)},
	promise.Loopback4:       {flavors4, probeReach(host, loopbackAddr)},
	promise.Loopback6:       {flavors6, probeReach(host, loopbackAddr)},
	promise.Peer:            {flavors, probePeer},
	promise.Itself:          {flavors, probeItself},
	promise.LoopbackClosed:  {flavors4, probeLoopbackClosed},
	promise.V6ToV4:          {flavors6, probeV6ToV4},
	promise.LANSource:       {flavors, probeSource(lan, fixed(clientAddr))},
	promise.HostSource:      {flavors, probeHostSource},
	promise.PeerSource:      {flavors, probeSource(neighbour, ofPeer)},
	promise.InputFirewall:   {flavors, probeFirewall("input", "%s dport %d", filtered)},
	promise.ForwardFirewall: {flavors, probeFirewall("forward", "meta l4proto %s ct original proto-dst %d", fenced)},
	promise.IPsec:           {flavors, probeCovered},
	promise.Survives:        {flavors, probeSurvives},
}

func lan(l *lab) place.Place       { return l.world.DoClient }
func host(l *lab) place.Place      { return l.world.DoServer }
func neighbour(l *lab) place.Place { return l.in(peer) }

func (c cell) at(addr netip.Addr, u use) netip.AddrPort {
	return netip.AddrPortFrom(addr, hostPort(c.via, u))
}

// probeReach sends a request to a published port from a place.
func probeReach(from func(*lab) place.Place, addr func(v4 bool) netip.Addr) func(*lab, cell) result {
	return func(l *lab, c cell) result {
		return reaches(from(l), c.flavor.proto, c.at(addr(c.flavor.v4), open), web)
	}
}

// probeCovered sends a request of the LAN's client to the port for which there is an IPsec policy.
func probeCovered(l *lab, c cell) result {
	return reaches(l.world.DoClient, c.flavor.proto, c.at(serverAddr(c.flavor.v4), covered), web)
}

// probeItself sends a request from the workload. A workload without a namespace is a process.
func probeItself(l *lab, c cell) result {
	to := c.at(serverAddr(c.flavor.v4), open)
	for _, w := range l.workers {
		if w.do.Name == web {
			name, err := w.ask(question{c.flavor.proto, to})
			return answered(to, name, web, err)
		}
	}
	return reaches(l.workload, c.flavor.proto, to, web)
}

// probePeer sends requests from a neighbour, and from a sandbox of another network if that network
// has the family.
func probePeer(l *lab, c cell) result {
	to := c.at(serverAddr(c.flavor.v4), open)
	f := reaches(l.in(peer), c.flavor.proto, to, web)
	if _, has := l.address(far, c.flavor.v4); !f.kept || !has {
		return f
	}
	return reaches(l.in(far), c.flavor.proto, to, web)
}

// probeV6ToV4 sends requests to a workload without IPv6, from the LAN and from
// ::1.
func probeV6ToV4(l *lab, c cell) result {
	if _, has := l.address(old, false); has && l.sandboxed() {
		return result{err: errors.New("the workload has an IPv6 address")}
	}
	if f := reaches(l.world.DoClient, c.flavor.proto, c.at(topology.ServerAddr6, oldOnly), old); !f.kept {
		return f
	}
	return reaches(l.world.DoServer, c.flavor.proto, c.at(netip.IPv6Loopback(), oldOnly), old)
}

// probeSource checks which client address the workload receives.
func probeSource(from func(*lab) place.Place, want func(*lab, bool) netip.Addr) func(*lab, cell) result {
	return func(l *lab, c cell) result {
		own := want(l, c.flavor.v4)
		return sees(from(l), c.flavor.proto, c.at(serverAddr(c.flavor.v4), open), web,
			func(seen netip.Addr) bool { return seen == own })
	}
}

func fixed(addr func(v4 bool) netip.Addr) func(*lab, bool) netip.Addr {
	return func(_ *lab, v4 bool) netip.Addr { return addr(v4) }
}

func ofPeer(l *lab, v4 bool) netip.Addr {
	addr, _ := l.address(peer, v4)
	return addr
}

// probeHostSource sends requests from the host, to its own address and to loopback. The workload
// must receive an address of the host that is not loopback.
func probeHostSource(l *lab, c cell) result {
	var own []net.Addr
	if err := l.world.DoServer(func() (err error) { own, err = net.InterfaceAddrs(); return err }); err != nil {
		return result{err: err}
	}
	fits := func(seen netip.Addr) bool {
		for _, a := range own {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == seen {
				return !seen.IsLoopback()
			}
		}
		return false
	}
	f := sees(l.world.DoServer, c.flavor.proto, c.at(serverAddr(c.flavor.v4), open), web, fits)
	if f.err != nil || !f.kept {
		return f
	}
	return sees(l.world.DoServer, c.flavor.proto, c.at(loopbackAddr(c.flavor.v4), open), web, fits)
}

// probeLoopbackClosed tests a port that is published only on 127.0.0.1. The client host and
// mallory, which both route 127.0.0.1 to the server, send requests to that address and to the
// server's own. A counter checks that the packets arrive at the server's link.
func probeLoopbackClosed(l *lab, c cell) result {
	local := c.at(loopbackAddr(true), loopback)
	if f := reaches(l.world.DoServer, c.flavor.proto, local, web); !f.kept {
		return result{err: fmt.Errorf("the host itself does not reach it: %s", f.because)}
	}
	malloryAddr, _ := l.address(mallory, true)
	attempts := []func() result{
		func() result { return l.intrude(c, lan(l), topology.ClientAddr4, local) },
		func() result { return l.trespass(c, lan(l)) },
	}
	if l.sandboxed() {
		attempts = append(attempts,
			func() result { return l.intrude(c, l.in(mallory), malloryAddr, local) },
			func() result { return l.trespass(c, l.in(mallory)) })
	}
	results := make([]result, len(attempts))
	var wg sync.WaitGroup
	for i, attempt := range attempts {
		wg.Go(func() { results[i] = attempt() })
	}
	wg.Wait()
	for _, f := range results {
		if !f.kept || f.err != nil {
			return f
		}
	}
	return result{kept: true, because: "no packet reached the port"}
}

// trespass keeps the promise if the port is not reachable at the host's own address either.
func (l *lab) trespass(c cell, from place.Place) result {
	f := reaches(from, c.flavor.proto, c.at(topology.ServerAddr4, loopback), web)
	f.kept = !f.kept
	return f
}

// intrude keeps the promise if the intruder's packets arrive at the server and get no answer.
func (l *lab) intrude(c cell, from place.Place, addr netip.Addr, to netip.AddrPort) result {
	count := fmt.Sprintf("ip saddr %s ip daddr %s %s dport %d", addr, to.Addr(), c.flavor.proto, to.Port())
	if err := l.nft(fmt.Sprintf("add rule inet probe raw %s counter", count)); err != nil {
		return result{err: err}
	}
	f := reaches(from, c.flavor.proto, to, web)
	rules, err := shell.Try(l.world.DoServer, "nft list chain inet probe raw")
	if err == nil && (!strings.Contains(rules, count+" counter packets") ||
		strings.Contains(rules, count+" counter packets 0 ")) {
		err = fmt.Errorf("no packet from %s to %s arrived at the server:\n%s", addr, to, rules)
	}
	return result{kept: !f.kept, because: fmt.Sprintf("%s to %s: %s", addr, to, f.because),
		err: errors.Join(err, f.err)}
}

// nft changes the server's firewall, one change at a time.
func (l *lab) nft(command string) error {
	l.firewall.Lock()
	defer l.firewall.Unlock()
	_, err := shell.Try(l.world.DoServer, "nft '"+command+"'")
	return err
}

// probeFirewall closes a port that the LAN reaches, with a rule in one of the host's chains. The
// format match takes the protocol and the host port, and identifies the port in the rule.
func probeFirewall(chain, match string, u use) func(*lab, cell) result {
	return func(l *lab, c cell) result {
		to := c.at(serverAddr(c.flavor.v4), u)
		if f := reaches(l.world.DoClient, c.flavor.proto, to, web); !f.kept {
			return result{err: fmt.Errorf("the LAN does not reach the port without the rule: %s", f.because)}
		}
		family := map[bool]string{true: "ipv4", false: "ipv6"}[c.flavor.v4]
		port := fmt.Sprintf(match, c.flavor.proto, to.Port())
		if err := l.nft(fmt.Sprintf("add rule inet probe %s iifname %s meta nfproto %s %s drop", chain, topology.Wire,
			family, port)); err != nil {
			return result{err: err}
		}
		f := reaches(l.world.DoClient, c.flavor.proto, to, web)
		return result{kept: !f.kept, because: "with the rule: " + f.because, err: f.err}
	}
}

// probeSurvives sends requests before and after the engine is killed: in the conversation that was
// open, and in a new one.
func probeSurvives(l *lab, c cell) result {
	to := c.at(serverAddr(c.flavor.v4), open)
	was, err := dial(l.doomed.world.DoClient, c.flavor.proto, to)
	if err != nil {
		l.doomed.ready.Done()
		return result{err: err}
	}
	defer was.conn.Close()
	before, _, err := was.ask()
	l.doomed.ready.Done()
	if f := answered(to, before, web, err); !f.kept {
		return result{err: fmt.Errorf("the port was not reachable before: %s", f.because)}
	}
	<-l.doomed.dead
	if l.doomed.err != nil {
		return result{err: l.doomed.err}
	}
	name, _, err := was.ask()
	same := answered(to, name, web, err)
	fresh := reaches(l.doomed.world.DoClient, c.flavor.proto, to, web)
	verdict := result{kept: fresh.kept, because: fresh.because, err: errors.Join(same.err, fresh.err)}
	if same.kept != fresh.kept {
		verdict.err = fmt.Errorf("the results differ: the open conversation: %s; a new one: %s", same.because,
			fresh.because)
	}
	return verdict
}
