package proxy

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A connection that we close first leaves its local port in TIME_WAIT for a
// minute. The kernel's own choice of a port passes those over, and takes
// milliseconds to find another once half of them are gone: one target then
// sees some 500 connections a second, and none after 28,000 in a minute.
//
// A port that was chosen by bind may be taken over from TIME_WAIT at once if
// the old connection used timestamps, which is safe: they tell late segments
// from new ones. So we choose, from a few ports only, because the kernel
// gives a bound port to no other program's connections. Both the old socket
// and the new one need SO_REUSEADDR. Where our ports are in use by live
// connections to the same target, the kernel chooses after all.
const (
	// poolPorts is how many ports a worker reuses.
	poolPorts = 1024
	// portTries bounds the search among them.
	portTries = 4
	// poolRest is for how many connections a full pool is left alone.
	poolRest = 256
)

// portPool is a worker's choice of local ports.
type portPool struct {
	first, count int
	next         int
	rest         int // connections to go before the pool is tried again
}

// newPortPool takes part n, from the end, of the range that is meant for
// connections; it is empty if that is too small to share.
func newPortPool(n int) portPool {
	first, last := 32768, 60999 // the kernel's defaults
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &first, &last)
	}
	begin := last + 1 - (n+1)*poolPorts
	if begin < first {
		return portPool{}
	}
	return portPool{first: begin, count: poolPorts}
}

// dial starts a connection to the target of the group's port at offset.
func (w *worker) dial(g *group, offset uint16) (int, unix.Errno) {
	to := g.target.withPort(g.TargetPorts.First + offset)
	p := &w.ports
	if p.rest > 0 || p.count == 0 {
		p.rest = max(0, p.rest-1)
		return dialFrom(nil, &to)
	}
	for range portTries {
		from := to.everywhere().withPort(uint16(p.first + p.next))
		p.next = (p.next + 1) % p.count
		fd, e := dialFrom(&from, &to)
		if e != unix.EADDRNOTAVAIL && e != unix.EADDRINUSE {
			return fd, e
		}
	}
	p.rest = poolRest
	return dialFrom(nil, &to)
}

// dialFrom starts a connection, from the kernel's choice of port if from is
// nil.
func dialFrom(from, to *sockaddr) (int, unix.Errno) {
	fd, e := socketOf(to.family(), unix.SOCK_STREAM)
	if e != 0 {
		return 0, e
	}
	_ = setReuse(fd, 1)
	for _, o := range streamOptions {
		_ = setOption(fd, o.level, o.name, o.value)
	}
	if from != nil {
		e = bindFD(fd, from)
	}
	if e == 0 {
		e = connect(fd, to)
	}
	if e != 0 && e != unix.EINPROGRESS {
		closeFD(fd)
		return 0, e
	}
	return fd, 0
}
