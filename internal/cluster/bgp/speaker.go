// Package bgp announces addresses of a cluster to routers, from each node that can serve them. It is
// used for addresses that several nodes have at the same time: routers spread the connections over
// the nodes, and no node has to be the only holder.
//
// Theory of operation. Snapshots have the routers (record.BGPPeer) and the addresses with
// `announce: bgp`. What this node announces is a pure function of the snapshot (wanted). The Announcer
// adds the addresses to the loopback link, then announces them; it withdraws them first when they go.
// A Speaker is the BGP-4 (RFC 4271) and BFD (RFC 5880) of gobgp. It connects to the routers and accepts
// no connections, so the host has no open port for BGP. It takes over no routes from routers.
package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// The times of a session. A router notices a node that is gone after bfdInterval*bfdMultiplier with BFD,
// after holdTime without.
const (
	holdTime      = 9 * time.Second
	keepalive     = 3 * time.Second
	retry         = 5 * time.Second
	bfdInterval   = 300 * time.Millisecond
	bfdMultiplier = 3
)

// router is a router to which this node announces addresses.
type router struct {
	Address netip.Addr
	// AS is the router's autonomous system, LocalAS this node's.
	AS, LocalAS uint32
	BFD         bool
}

// speaker announces addresses to routers. Its methods must not be called concurrently.
type speaker struct {
	server    *server.BgpServer
	routers   map[netip.Addr]router
	announced map[netip.Addr]bool
}

// startSpeaker starts BGP without routers. The id distinguishes this node from the routers' other neighbours. It
// has the form of an IPv4 address.
func startSpeaker(id netip.Addr, as uint32, log *slog.Logger) (*speaker, error) {
	s := &speaker{server: server.NewBgpServer(server.LoggerOption(log, nil)), routers: map[netip.Addr]router{},
		announced: map[netip.Addr]bool{}}
	go s.server.Serve()
	err := s.server.StartBgp(context.Background(), &api.StartBgpRequest{Global: &api.Global{
		Asn: as, RouterId: id.String(), ListenPort: -1}})
	if err == nil {
		err = s.refuseRoutes()
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("start BGP: %w", err)
	}
	return s, nil
}

// refuseRoutes makes the speaker ignore what routers announce: it would pass it on to other routers.
func (s *speaker) refuseRoutes() error {
	own := &api.Policy{Name: "own", Statements: []*api.Statement{{Name: "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}}}}
	if err := s.server.AddPolicy(context.Background(), &api.AddPolicyRequest{Policy: own}); err != nil {
		return err
	}
	return s.server.SetPolicyAssignment(context.Background(), &api.SetPolicyAssignmentRequest{
		Assignment: &api.PolicyAssignment{Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
			Policies: []*api.Policy{own}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT}})
}

// stop ends all sessions. Routers then have no route to this node any more.
func (s *speaker) stop() { s.server.Stop() }

// set makes the routers and the announced addresses those given. It continues after an error.
func (s *speaker) set(routers []router, addresses []netip.Addr) error {
	var failed error
	wanted := map[netip.Addr]bool{}
	for _, a := range addresses {
		wanted[a] = true
	}
	for _, a := range slices.SortedFunc(maps.Keys(s.announced), netip.Addr.Compare) {
		if !wanted[a] {
			failed = errors.Join(failed, s.withdraw(a))
		}
	}
	for _, a := range addresses {
		if !s.announced[a] {
			failed = errors.Join(failed, s.announce(a))
		}
	}
	return errors.Join(failed, s.connect(routers))
}

// connect makes the routers those given.
func (s *speaker) connect(routers []router) error {
	var failed error
	for addr, r := range s.routers {
		if slices.Contains(routers, r) {
			continue
		}
		err := s.server.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: addr.String()})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("disconnect from router %s: %w", addr, err))
			continue
		}
		delete(s.routers, addr)
	}
	for _, r := range routers {
		if _, connected := s.routers[r.Address]; connected {
			continue
		}
		if err := s.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: peerOf(r)}); err != nil {
			failed = errors.Join(failed, fmt.Errorf("connect to router %s: %w", r.Address, err))
			continue
		}
		s.routers[r.Address] = r
	}
	return failed
}

// peerOf returns the settings of the session with a router. It is for addresses of the router's family.
func peerOf(r router) *api.Peer {
	family := &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	if r.Address.Is6() {
		family.Afi = api.Family_AFI_IP6
	}
	return &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: r.Address.String(), PeerAsn: r.AS, LocalAsn: r.LocalAS},
		Timers: &api.Timers{Config: &api.TimersConfig{HoldTime: uint64(holdTime.Seconds()),
			KeepaliveInterval: uint64(keepalive.Seconds()), ConnectRetry: uint64(retry.Seconds()),
			IdleHoldTimeAfterReset: uint64(retry.Seconds())}},
		AfiSafis: []*api.AfiSafi{{Config: &api.AfiSafiConfig{Family: family, Enabled: true}}},
		Bfd: &api.BfdPeerConfig{Enabled: r.BFD, DetectionMultiplier: bfdMultiplier,
			DesiredMinimumTxInterval: uint32(bfdInterval.Microseconds()),
			RequiredMinimumReceive:   uint32(bfdInterval.Microseconds())},
	}
}

func (s *speaker) announce(a netip.Addr) error {
	path, err := pathOf(a)
	if err == nil {
		_, err = s.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
	}
	if err != nil {
		return fmt.Errorf("announce address %s: %w", a, err)
	}
	s.announced[a] = true
	return nil
}

func (s *speaker) withdraw(a netip.Addr) error {
	path, err := pathOf(a)
	if err == nil {
		err = s.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{path}})
	}
	if err != nil {
		return fmt.Errorf("withdraw address %s: %w", a, err)
	}
	delete(s.announced, a)
	return nil
}

// pathOf returns the route to an address. Its next hop is this node's address on the session.
func pathOf(a netip.Addr) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(netip.PrefixFrom(a, a.BitLen()))
	if err != nil {
		return nil, err
	}
	origin := bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP)
	if a.Is4() {
		hop, err := bgp.NewPathAttributeNextHop(netip.IPv4Unspecified())
		return &apiutil.Path{Family: bgp.RF_IPv4_UC, Nlri: nlri, Attrs: []bgp.PathAttributeInterface{origin, hop}}, err
	}
	reach, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_IPv6_UC, []bgp.PathNLRI{{NLRI: nlri}},
		netip.IPv6Unspecified())
	return &apiutil.Path{Family: bgp.RF_IPv6_UC, Nlri: nlri, Attrs: []bgp.PathAttributeInterface{origin, reach}}, err
}

// sessions returns the sessions with the routers.
func (s *speaker) sessions() (all []session, err error) {
	err = s.server.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
		addr, err := netip.ParseAddr(p.GetState().GetNeighborAddress())
		if err != nil {
			return
		}
		all = append(all, sessionOf(s.routers[addr], p))
	})
	return all, err
}
