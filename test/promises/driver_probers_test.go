package promises_test

import (
	"fmt"
	"net"
	"net/netip"

	"fairlead/internal/promise"
	"fairlead/test/place"
)

// driverProbers tests each promise of a driver with packets.
var driverProbers = map[promise.Question]prober{
	promise.Isolated:       {flavors, probeIsolated},
	promise.HostDirect:     {flavors, probeDirect(func(l *lab) place.Place { return l.world.DoServer })},
	promise.PeerDirect:     {flavors, probeDirect(func(l *lab) place.Place { return l.in(peer) })},
	promise.LANDirect:      {flavors, probeDirect(func(l *lab) place.Place { return l.world.DoClient })},
	promise.Outbound:       {flavors, probeOutbound},
	promise.OutboundSource: {flavors, probeOutboundSource},
}

// probeIsolated sends a request to the host's loopback address. The workload listens on every
// address of its namespace: it answers if it shares the host's namespace.
func probeIsolated(l *lab, c cell) result {
	local := netip.AddrPortFrom(loopbackAddr(c.flavor.v4), workPort)
	if f := reaches(l.workload, c.flavor.proto, local, web); !f.kept {
		return result{err: fmt.Errorf("the workload does not reach itself: %s", f.because)}
	}
	f := reaches(l.world.DoServer, c.flavor.proto, local, web)
	return result{kept: !f.kept, because: "from the host: " + f.because, err: f.err}
}

func loopbackAddr(v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// probeDirect sends a request to the workload's own address.
func probeDirect(from func(*lab) place.Place) func(*lab, cell) result {
	return func(l *lab, c cell) result {
		addr, ok := l.address(web, c.flavor.v4)
		if !ok {
			return l.linkless()
		}
		return reaches(from(l), c.flavor.proto, netip.AddrPortFrom(addr, workPort), web)
	}
}

// linkless returns the result for a sandbox without an address. No packet can be sent there if the
// sandbox has no link.
func (l *lab) linkless() result {
	var links []net.Interface
	err := l.workload(func() (err error) { links, err = net.Interfaces(); return err })
	if err == nil && (len(links) != 1 || links[0].Name != "lo") {
		err = fmt.Errorf("the sandbox has links without an address: %v", links)
	}
	return result{because: "the sandbox has no link", err: err}
}

func probeOutbound(l *lab, c cell) result {
	return reaches(l.workload, c.flavor.proto, netip.AddrPortFrom(clientAddr(c.flavor.v4), lanPort), "lan")
}

func probeOutboundSource(l *lab, c cell) result {
	own, ok := l.address(web, c.flavor.v4)
	if !ok {
		return probeOutbound(l, c)
	}
	return sees(l.workload, c.flavor.proto, netip.AddrPortFrom(clientAddr(c.flavor.v4), lanPort), "lan",
		func(seen netip.Addr) bool { return seen == own })
}
