package agent

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxWaiting limits connections without a preface.
const maxWaiting = 256

// waiting are the connections without a preface, the oldest first. A new connection is
// always accepted: if there are too many, the host that has most of them loses its
// oldest one. So a host with few connections keeps them, whatever others do.
type waiting struct {
	mu  sync.Mutex
	all []waitingConn
}

type waitingConn struct {
	conn *net.TCPConn
	from netip.Prefix
}

// add adds a connection, and closes another one if there are too many.
func (w *waiting) add(conn *net.TCPConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, waitingConn{conn, source(conn)})
	if len(w.all) <= maxWaiting {
		return
	}
	counts, most := map[netip.Prefix]int{}, 0
	for _, c := range w.all {
		counts[c.from]++
		most = max(most, counts[c.from])
	}
	i := slices.IndexFunc(w.all, func(c waitingConn) bool { return counts[c.from] == most })
	w.all[i].conn.Close()
	w.all = slices.Delete(w.all, i, i+1)
}

// remove removes a connection, which may have been closed already.
func (w *waiting) remove(conn *net.TCPConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(c waitingConn) bool { return c.conn == conn })
}

// source returns what one host can choose its address from: an IPv4 address, or a
// prefix of 64 bits (RFC 4291, section 2.5.1).
func source(conn *net.TCPConn) netip.Prefix {
	addr := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
	prefix, _ := addr.Prefix(min(addr.BitLen(), 64)) // as long as the address at most, so there is no error
	return prefix
}
