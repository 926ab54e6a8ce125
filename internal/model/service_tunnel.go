package model

import (
	"errors"
	"fmt"
)

// TunnelType is the encapsulation of packets for ForwardTunnel.
type TunnelType string

// The tunnel types. The names are those of ipvsadm(8).
const (
	// TunnelIPIP puts an IP header of the same family before the packet. It is the
	// empty type.
	TunnelIPIP TunnelType = ""
	// TunnelGUE adds a UDP header between the two IP headers (Generic UDP
	// Encapsulation, draft-ietf-intarea-gue, variant 0).
	TunnelGUE TunnelType = "gue"
)

// TunnelChecksum is the checksum that a tunnel adds to detect corrupted packets.
type TunnelChecksum string

// The tunnel checksums. The empty one adds no checksum to those of the inner
// packets.
const (
	// TunnelSummed adds a UDP checksum.
	TunnelSummed TunnelChecksum = "csum"
	// TunnelRemoteSummed lets the receiver compute the inner checksum if the sender
	// has not computed it yet (remote checksum offload).
	TunnelRemoteSummed TunnelChecksum = "remcsum"
)

// Tunnel is the encapsulation for ForwardTunnel. The zero value is IPIP.
type Tunnel struct {
	Type TunnelType `json:"type,omitempty"`
	// Port is the UDP port on which real servers receive TunnelGUE. The port that
	// IANA assigned is 6080.
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

// validateTunnel returns an error for the first mistake in the encapsulation.
func (v VirtualService) validateTunnel() error {
	t := v.Tunnel
	switch t.Checksum {
	case "", TunnelSummed, TunnelRemoteSummed:
	default:
		return fmt.Errorf("tunnel checksum %q: want csum, remcsum or nothing", t.Checksum)
	}
	switch {
	case t == (Tunnel{}):
		return nil
	case v.Forward != ForwardTunnel:
		return fmt.Errorf("tunnel %s: the service does not forward packets through a tunnel: set forward to "+
			"tunnel, or the tunnel to ipip", t)
	case t.Type == TunnelIPIP:
		return errors.New("tunnel ipip: it has neither a port nor a checksum: leave them out")
	case t.Type != TunnelGUE:
		return fmt.Errorf("tunnel %q: want ipip or gue", t.Type)
	case t.Port == 0:
		return errors.New("tunnel gue: want the UDP port on which the real servers receive it, e.g. gue:6080")
	}
	return nil
}
