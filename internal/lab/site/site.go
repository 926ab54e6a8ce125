// Package site builds the web site of the suite site: hosts on one LAN, with a
// director and nodes that each have a gateway and a web server. It does not visit the
// site, and evaluates nothing.
//
// # Theory of operation
//
//	visitors ─┐                    ┌─ node 1: gateway, web server
//	          ├─ switch (bridge) ──┼─ node 2: …
//	director ─┘                    └─ …
//
// Every host is a network namespace with one link to the switch. Visitors on another
// machine reach the LAN through a router, which has the visitors' place on the switch. With one gateway,
// the virtual address belongs to node 1, whose gateway forwards to the web servers of
// all nodes. This is how a reverse proxy behind an address that can move serves a
// swarm. With several gateways, a whole Fairlead daemon on the director balances TCP
// connections with `forward: direct`, and each gateway forwards to the web server of
// its own node. Every node has the virtual address too, and answers visitors directly.
//
// Each gateway is in a cgroup with a CPU quota. So the gateways limit the site and not
// the generator, although all of them share the CPUs of one machine. A web server has
// no quota: one gateway uses the web servers of all nodes, and each of several its own
// node's, so a quota for both would hold several gateways to less.
package site

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/certificate"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/lab/topology/lan"
	"fairlead/internal/plan"
)

// Host is the name of the web site.
const Host = "www.lab.test"

// Nodes is the number of nodes of every site.
const Nodes = 4

// Quota is the CPU time of each gateway per Period. It is the least one that the kernel
// accepts, so that all gateways together leave most of two CPUs to the web servers and
// the visitors. The period is short, so that a gateway that has used its quota pauses
// for milliseconds.
const (
	Quota  = time.Millisecond
	Period = 10 * time.Millisecond
)

// The last bytes of the addresses on the LAN. Nodes have those after firstNode.
const (
	clientNumber   = 1
	directorNumber = 2
	firstNode      = 10
	virtualNumber  = 200
)

// The networks of the LAN, from ranges for documentation (RFC 5737, RFC 3849).
var (
	subnet4 = netip.MustParsePrefix("203.0.113.0/24")
	subnet6 = netip.MustParsePrefix("2001:db8:113::/64")
)

// Subnet returns the network of the LAN in a family.
func Subnet(f result.Family) netip.Prefix {
	if f.Is6() {
		return subnet6
	}
	return subnet4
}

// address returns an address on the LAN.
func (s *Site) address(number byte) netip.Addr {
	a := Subnet(s.Path.Family).Addr().AsSlice()
	a[len(a)-1] = number
	addr, _ := netip.AddrFromSlice(a)
	return addr
}

// virtual returns the virtual address.
func (s *Site) virtual() netip.Addr { return s.address(virtualNumber) }

// The ports of the gateways and of the web servers.
const (
	securePort = 443
	webPort    = 8080
)

// ErrNoGroups means that the host has no cgroup v2, by which a site limits its gateways.
var ErrNoGroups = errors.New("a web site needs cgroup v2 for its gateways")

// Options are the options of a site.
type Options struct {
	Path   suite.Path
	Facts  plan.Facts
	Groups *ledger.Groups
	// Pages is the number of pages of the web site.
	Pages int
	// Interval is the time between two health checks of a gateway; 0 means none.
	Interval time.Duration
	// Router is a part with the server host, which forwards the packets of visitors on
	// another machine. If it is nil, the visitors are on a host on the LAN.
	Router *topology.World
}

// Site is a web site that runs.
type Site struct {
	Options
	Nodes []*Node

	cert     certificate.Pair
	lan      *lan.LAN
	client   *lan.Host
	director *director
}

// New builds a site and waits until all gateways answer.
func New(ctx context.Context, opt Options) (s *Site, err error) {
	s = &Site{Options: opt}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build site %s: %w", opt.Path.Name, err), s.Close())
			s = nil
		}
	}()
	if s.cert, err = certificate.New(Host); err != nil {
		return s, err
	}
	if err = s.network(); err != nil {
		return s, err
	}
	for _, n := range s.Nodes {
		if err = n.startServer(ctx); err != nil {
			return s, err
		}
	}
	for _, n := range s.Gateways() {
		if err = n.startGateway(ctx); err != nil {
			return s, err
		}
	}
	if s.Balanced() {
		if s.director, err = startDirector(ctx, s); err != nil {
			return s, err
		}
	}
	return s, s.limit()
}

// Balanced reports whether a director balances over several gateways.
func (s *Site) Balanced() bool { return s.Path.Gateways > 1 }

// Gateways returns the nodes that have a gateway.
func (s *Site) Gateways() []*Node { return s.Nodes[:s.Path.Gateways] }

// limit begins to limit the CPU time of the gateways, whose start it must not delay.
func (s *Site) limit() error {
	for _, n := range s.Nodes {
		if err := n.limited.Limit(Quota, Period); err != nil {
			return err
		}
	}
	return nil
}

// network creates the LAN with its hosts but the director's.
func (s *Site) network() (err error) {
	if s.lan, err = lan.New(s.Facts); err != nil {
		return err
	}
	if err = s.joinVisitors(); err != nil {
		return err
	}
	for i := range Nodes {
		n := &Node{site: s, Name: fmt.Sprint("node", i+1), Addr: s.address(byte(firstNode + i + 1))}
		if n.host, err = s.join(n.Name, n.Addr); err != nil {
			return err
		}
		s.Nodes = append(s.Nodes, n)
		if n.limited, err = s.Groups.Limited(n.Name); err != nil {
			return err
		}
		if n.served, err = s.Groups.Limited(n.Name + "-web"); err != nil {
			return err
		}
	}
	return s.addVirtual()
}

// joinVisitors connects the visitors' host, or the router to it.
func (s *Site) joinVisitors() (err error) {
	if s.Router != nil {
		s.client, err = s.lan.Route("router", s.address(clientNumber), s.Router)
		return err
	}
	if s.client, err = s.lan.Join("visitors", s.address(clientNumber)); err != nil {
		return err
	}
	return s.client.Do(topology.MorePorts)
}

// join creates a host on the LAN that reaches the visitors.
func (s *Site) join(name string, addr netip.Addr) (*lan.Host, error) {
	h, err := s.lan.Join(name, addr)
	if err == nil && s.Router != nil {
		err = h.AddRoute(topology.Subnet(rig.AddressesOf(s.Path.Family).Client).Masked(), s.address(clientNumber))
	}
	return h, err
}

// addVirtual gives the virtual address to the only gateway's host, where the switch
// finds it, or to all gateways' hosts, which do not announce it.
func (s *Site) addVirtual() error {
	if !s.Balanced() {
		return s.Nodes[0].host.AddAddress(s.virtual())
	}
	for _, n := range s.Gateways() {
		if err := n.acceptVirtual(); err != nil {
			return err
		}
	}
	return nil
}

// Entry is what visitors know of a site: the address that they dial, and the
// certificate in PEM.
type Entry struct {
	Target netip.AddrPort
	Chain  []byte
}

// Entry returns what visitors know of the site.
func (s *Site) Entry() Entry { return Entry{netip.AddrPortFrom(s.virtual(), securePort), s.cert.Chain} }

// Visitors is where the visitors run.
func (s *Site) Visitors() child.Place {
	at := s.client.Place()
	at.Cgroup = s.Groups.Client
	return at
}

// Close ends everything; it continues after errors.
func (s *Site) Close() error {
	var errs []error
	if s.director != nil {
		errs = append(errs, s.director.close())
	}
	for _, n := range s.Nodes {
		errs = append(errs, n.close())
	}
	if s.lan != nil {
		errs = append(errs, s.lan.Close())
	}
	return errors.Join(errs...)
}
