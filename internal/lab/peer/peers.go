// Package peer has the makers of the paths that Fairlead is compared with: one
// file per peer, and the list of them.
package peer

import (
	"fmt"

	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// peers are the peers and how to make their paths.
var peers = []struct {
	suite.Peer
	maker func(suite.Path) rig.Maker
}{
	{suite.DockerProxy, newDockerProxy},
	{suite.HandDNAT, newHandDNAT},
	{suite.HandMasquerade, newHandMasquerade},
	{suite.HandHops, newHandHops},
	{suite.HandMade, newHandMade},
	{suite.CNI, newCNI},
	{suite.Slirp4netns, newSlirp4netns},
	{suite.Pasta, newPasta},
	{suite.HAProxy, newHAProxy},
	{suite.Docker, newDocker},
	{suite.DockerFairlead, newDockerFairlead},
	{suite.FairleadGateway, newFairleadGateway},
	{suite.Nginx, newNginx},
	{suite.HAProxyHTTP, newHAProxyHTTP},
	{suite.Traefik, newTraefik},
	{suite.Traefik2, newTraefik},
	{suite.Caddy, newCaddy},
	{suite.Keepalived, newKeepalived},
	{suite.TunedKeepalived, newTunedKeepalived},
	{suite.FairleadAddress, newFairleadAddress},
}

// Maker returns the maker of a path: its peer's, or Fairlead's engine. It panics
// if the peer is missing in the list.
func Maker(p suite.Path) rig.Maker {
	if p.Peer.Name == "" {
		return rig.NewEngine(p)
	}
	for _, known := range peers {
		if known.Name == p.Peer.Name {
			return known.maker(p)
		}
	}
	panic(fmt.Sprintf("path %s: peer %s has no maker", p.Name, p.Peer.Name))
}
