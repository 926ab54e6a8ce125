package importer

import (
	"fmt"
	"strconv"

	"fairlead/internal/model"
)

// forwarding is how packets are forwarded to a real server. It is the same for all real
// servers of a service.
type forwarding struct {
	forward model.Forward
	tunnel  model.Tunnel
}

// String writes it as "nat", or as "tunnel gue:6080".
func (s forwarding) String() string {
	if s.tunnel == (model.Tunnel{}) {
		return string(s.forward)
	}
	return string(s.forward) + " " + s.tunnel.String()
}

// wrapped returns the forwarding with a tunnel of the given type; "" means ipip. port
// and sum are for GUE; nocsum means no checksum.
func wrapped(kind, port, sum string) (forwarding, error) {
	s := forwarding{forward: model.ForwardTunnel}
	switch kind {
	case "", "ipip":
		return s, nil
	case string(model.TunnelGUE):
	default:
		return s, fmt.Errorf("its tunnel has the type %s: want ipip or gue", kind)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return s, fmt.Errorf("its tunnel has the type gue and the port %q: want the UDP port on which the server "+
			"receives it", port)
	}
	s.tunnel = model.Tunnel{Type: model.TunnelGUE, Port: uint16(n)}
	if sum != "nocsum" {
		s.tunnel.Checksum = model.TunnelChecksum(sum)
	}
	return s, nil
}
