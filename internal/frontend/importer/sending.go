package importer

import (
	"fmt"
	"strconv"

	"fairlead/internal/model"
)

// sending is how a real server is forwarded to. All of a service are alike.
type sending struct {
	forward model.Forward
	tunnel  model.Tunnel
}

// String writes it as "nat", or as "tunnel gue:6080".
func (s sending) String() string {
	if s.tunnel == (model.Tunnel{}) {
		return string(s.forward)
	}
	return string(s.forward) + " " + s.tunnel.String()
}

// wrapped is by a tunnel of a type, empty for ipip. Port and checksum are GUE's;
// the checksum nocsum is none.
func wrapped(kind, port, sum string) (sending, error) {
	s := sending{forward: model.ForwardTunnel}
	switch kind {
	case "", "ipip":
		return s, nil
	case string(model.TunnelGUE):
	default:
		return s, fmt.Errorf("it is by a tunnel of type %s: want ipip or gue", kind)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return s, fmt.Errorf("it is by a tunnel of type gue: want the port at which the server takes it, and not %q", port)
	}
	s.tunnel = model.Tunnel{Type: model.TunnelGUE, Port: uint16(n)}
	if sum != "nocsum" {
		s.tunnel.Checksum = model.TunnelChecksum(sum)
	}
	return s, nil
}
