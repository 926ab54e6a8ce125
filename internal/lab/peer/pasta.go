package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

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
func (*pasta) Start(ctx context.Context, r *rig.Rig) error {
	route := fmt.Sprintf("ip route add default via %s", topology.ClientAddr4)
	if _, err := program.Shell(r.World.DoServer, route); err != nil {
		return err
	}
	ports := fmt.Sprintf("%d-%d", rig.LoadPort, rig.LastPort)
	said := &program.Output{}
	p, err := startUserMode(ctx, r, said, nil, "pasta",
		"--foreground", "--quiet", "--ipv4-only", "--config-net", "--no-map-gw",
		"--ns-ifname", "eth0", "--mtu", tapMTU, "--tcp-ports", ports, "--udp-ports", ports,
		"--tcp-ns", "none", "--udp-ns", "none",
		"--runas", "0", "--netns", boundBox)
	if err != nil {
		return err
	}
	r.Keep(p)
	// Pasta accepts connections at once, but loses them until the sandbox has sent
	// a packet, from which pasta learns its hardware address.
	forwards := func() bool { return program.Listens(p.Cmd.Process.Pid, rig.LoadPort) && spoken(r.World) }
	if !program.Await(ctx, p, forwards) {
		_ = p.Kill() // its output is complete only after it has ended
		return errors.Join(fmt.Errorf("start pasta: it ended: %s", said.Text()), ctx.Err())
	}
	return nil
}

// spoken makes the workload's sandbox send a datagram to its gateway, and reads
// from proc_pid_net(5) whether the gateway has answered ARP.
func spoken(w *topology.World) bool {
	const known = "0x2"
	answered := false
	err := w.DoSandbox(rig.Workload, func() error {
		gateway := topology.ClientAddr4.String()
		conn, err := net.Dial("udp4", net.JoinHostPort(gateway, "9"))
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("here")); err != nil {
			return err
		}
		table, err := os.ReadFile("/proc/thread-self/net/arp")
		for line := range strings.Lines(string(table)) {
			fields := strings.Fields(line)
			answered = answered || len(fields) > 2 && fields[0] == gateway && fields[2] == known
		}
		return err
	})
	return err == nil && answered
}
