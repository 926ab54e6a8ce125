package peer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
)

// pasta serves the sandbox's tap device with pasta of passt.
type pasta struct{ userMode }

func newPasta(p suite.Path) rig.Maker { return &pasta{userMode{rig.Base{Path: p}}} }

// Needs implements rig.Maker.
func (*pasta) Needs() rig.Needs {
	return rig.Needs{Programs: []rig.Program{{Name: "pasta", Package: "passt"}, unshareCommand, ipCommand}}
}

// Start implements rig.Maker. It starts pasta on the server host for the
// workload's sandbox, and waits until it forwards. Pasta copies the addresses of
// the link with the default route, so there must be one. It must not treat the
// gateway's address as the host itself, because that address is the client's.
func (m *pasta) Start(ctx context.Context, r *rig.Rig) error {
	at, only := m.Addresses(), "--ipv4-only"
	if at.IPv6() {
		only = "--ipv6-only"
	}
	route := fmt.Sprintf("ip route add default via %s", at.Client)
	if _, err := program.Shell(r.World.DoServer, route); err != nil {
		return err
	}
	ports := fmt.Sprintf("%d-%d", rig.LoadPort, rig.LastPort)
	said := &program.Output{}
	p, err := startUserMode(ctx, r, said, nil, "pasta",
		"--foreground", "--quiet", only, "--config-net", "--no-map-gw",
		"--ns-ifname", "eth0", "--mtu", tapMTU, "--tcp-ports", ports, "--udp-ports", ports,
		"--tcp-ns", "none", "--udp-ns", "none",
		"--runas", "0", "--netns", boundBox)
	if err != nil {
		return err
	}
	r.Keep(p)
	// Pasta accepts connections at once, but loses them until the sandbox has sent
	// a packet, from which pasta learns its hardware address.
	forwards := func() bool { return program.Listens(p.Cmd.Process.Pid, rig.LoadPort) && spoken(r.World, at.Client) }
	if !program.Await(ctx, p, forwards) {
		_ = p.Kill() // its output is complete only after it has ended
		return errors.Join(fmt.Errorf("start pasta: it ended: %s", said.Line()), ctx.Err())
	}
	return nil
}

// spoken makes the workload's sandbox send a datagram to its gateway, and returns
// whether the gateway has answered with its hardware address.
func spoken(w *topology.World, gateway netip.Addr) bool {
	if sendDatagram(w, rig.Workload, netip.AddrPortFrom(gateway, 9)) != nil {
		return false
	}
	inSandbox := func(fn func() error) error { return w.DoSandbox(rig.Workload, fn) }
	known, err := program.Shell(inSandbox, fmt.Sprintf("ip neigh show %s nud reachable", gateway))
	return err == nil && known != ""
}
