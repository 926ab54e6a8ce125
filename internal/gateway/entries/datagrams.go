package entries

import (
	"cmp"
	"net"
	"time"

	"fairlead/internal/gateway/datagram"
)

// receiving are the entry points that receive datagrams.
type receiving []*datagram.Entry

// receive begins to serve the entry points that receive datagrams.
func (p *Points) receive(sockets Sockets) (all receiving) {
	var own datagram.Own
	for _, s := range sockets {
		if s.UDP != nil {
			own = append(own, s.UDP.LocalAddr().(*net.UDPAddr).AddrPort())
		}
	}
	for _, value := range p.static.EntryPoints {
		c := sockets[value.Name].UDP
		if c == nil || !value.IsUDP() {
			continue
		}
		e := datagram.NewEntry(c, own, cmp.Or(value.UDPTimeout, 3*time.Second),
			func() *datagram.Route { return p.current.Load().Datagrams[value.Name] },
			p.observer.Metrics.Connections.WithLabelValues(value.Name, "UDP"), p.open.add)
		all = append(all, e)
		e.Start(func(err error) {
			p.log.Error("cannot receive datagrams", "entry point", value.Name, "error", err)
		})
	}
	return all
}

// leave stops reading: another process receives the clients' datagrams.
func (r receiving) leave() {
	for _, e := range r {
		e.Leave()
	}
}

// close ends all sessions.
func (r receiving) close() {
	for _, e := range r {
		e.Close()
	}
}
