package model

import (
	"errors"
	"fmt"
)

// TunnelType says in what packets are wrapped for ForwardTunnel.
type TunnelType string

// The types. The names are those of ipvsadm(8).
const (
	// TunnelIPIP puts an IP header of the same family before them; it is the empty
	// one.
	TunnelIPIP TunnelType = ""
	// TunnelGUE puts a UDP header between the two (Generic UDP Encapsulation,
	// draft-ietf-intarea-gue, variant 0).
	TunnelGUE TunnelType = "gue"
)

// TunnelChecksum says what a tunnel adds to find packets that have suffered.
type TunnelChecksum string

// The choices; the empty one adds nothing to the checksums of the packets within.
const (
	// TunnelSummed has a UDP checksum.
	TunnelSummed TunnelChecksum = "csum"
	// TunnelRemoteSummed leaves the inner checksum to the receiver, where the
	// sender has not worked it out yet (remote checksum offload).
	TunnelRemoteSummed TunnelChecksum = "remcsum"
)

// Tunnel says how packets are wrapped for ForwardTunnel. The zero value is IPIP.
type Tunnel struct {
	Type TunnelType `json:"type,omitempty"`
	// Port is the UDP port at which real servers take TunnelGUE; IANA has given it
	// 6080.
	Port     uint16         `json:"port,omitempty"`
	Checksum TunnelChecksum `json:"checksum,omitempty"`
}

// String writes the tunnel as "ipip", "gue:6080" or "gue:6080,csum".
func (t Tunnel) String() string {
	if t.Type == TunnelIPIP {
		return "ipip"
	}
	text := fmt.Sprintf("%s:%d", t.Type, t.Port)
	if t.Checksum != "" {
		text += "," + string(t.Checksum)
	}
	return text
}

// validateTunnel says what is wrong with how packets are wrapped.
func (v VirtualService) validateTunnel() error {
	t := v.Tunnel
	switch t.Checksum {
	case "", TunnelSummed, TunnelRemoteSummed:
	default:
		return fmt.Errorf("tunnel's checksum %q: want csum or remcsum, or none", t.Checksum)
	}
	switch {
	case t == (Tunnel{}):
		return nil
	case v.Forward != ForwardTunnel:
		return fmt.Errorf("tunnel %s: packets are not forwarded by tunnel: say so by forward, or make the tunnel ipip", t)
	case t.Type == TunnelIPIP:
		return errors.New("tunnel ipip: it has neither a port nor a checksum: leave them out")
	case t.Type != TunnelGUE:
		return fmt.Errorf("tunnel %q: want ipip or gue", t.Type)
	case t.Port == 0:
		return errors.New("tunnel gue: want the UDP port at which the real servers take it, e.g. gue:6080")
	}
	return nil
}
