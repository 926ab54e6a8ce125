package proxy

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A connection that the proxy closes first leaves its local port in TIME_WAIT
// for a minute. When the kernel chooses a port it skips these ports, and takes
// milliseconds to find another once half of the range is used: one target then
// gets about 500 connections per second, and none after 28,000 in a minute.
//
// A port that was chosen with bind can be reused from TIME_WAIT at once if the
// old connection used timestamps. This is safe, because the timestamps
// distinguish delayed segments from new ones. So the proxy chooses the ports
// itself. It uses only a few, because the kernel gives a bound port to no other
// program's connections. Both the old and the new socket need SO_REUSEADDR. If
// live connections to the same target use these ports, the kernel chooses.
const (
	// poolPorts is how many ports a worker reuses.
	poolPorts = 1024
	// portTries limits the ports that are tried for one connection.
	portTries = 4
	// poolRest is the number of connections for which a full pool is not
	// tried again.
	poolRest = 256
)

// portPool contains the local ports that a worker chooses from.
type portPool struct {
	first, count int
	next         int
	rest         int // connections to go before the pool is tried again
}

// newPortPool returns part n, counted from the end, of
// net.ipv4.ip_local_port_range. The pool is empty if the range is too small.
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

// dialFrom starts a connection. If from is nil, the kernel chooses the local
// port.
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
