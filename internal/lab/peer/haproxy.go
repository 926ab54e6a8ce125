package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// haproxy balances over sandboxes of Fairlead's engine with HAProxy on the server
// host, in TCP mode and with one worker per CPU as by default.
type haproxy struct{ *rig.Engine }

func newHAProxy(p suite.Path) rig.Maker { return &haproxy{rig.NewEngine(p)} }

// Needs implements rig.Maker.
func (*haproxy) Needs() rig.Needs {
	return rig.Needs{Programs: []rig.Program{{Name: "haproxy", Package: "haproxy"}}}
}

// Start implements rig.Maker. The workload is HAProxy's only server.
func (h *haproxy) Start(ctx context.Context, r *rig.Rig) error {
	if err := h.Engine.Start(ctx, r); err != nil {
		return err
	}
	said := &program.Output{}
	p, err := startHAProxy(ctx, haproxyConfig(h.Addresses()), said, r.Place(r.World.Server(), rig.ProxyGroup))
	if err != nil {
		return err
	}
	r.Keep(p)
	if !program.Await(ctx, p, func() bool { return program.Listens(p.Cmd.Process.Pid, rig.LastPort) }) {
		return errors.Join(fmt.Errorf("start haproxy: it does not listen: %s", said.Line()), ctx.Err())
	}
	return nil
}

// Proof implements rig.Maker.
func (h *haproxy) Proof(w rig.Window, _ *result.Proof) *result.Proof {
	return rig.CPUProof(h.Path.Peer.Name, w.Ledger.Proxy)
}

// startHAProxy starts HAProxy in the foreground with a configuration. In it, the
// further files are descriptors from 4 on.
func startHAProxy(
	ctx context.Context, text string, said io.Writer, at child.Place, further ...*os.File,
) (*child.Process, error) {
	path, err := program.Find("haproxy")
	if err != nil {
		return nil, err
	}
	config, err := program.InMemory(text)
	if err != nil {
		return nil, err
	}
	defer config.Close()
	cmd := exec.Command(path, "-db", "-f", "/proc/self/fd/3")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = said, said, append([]*os.File{config}, further...)
	return child.Start(ctx, cmd, at)
}

// haproxyConfig makes HAProxy listen on every port and connect to the same port of
// the workload. Idle connections of a long run are not closed. The options are
// favourable for HAProxy: no separate acknowledgement if data follows, accept
// after the client has sent data, as all clients here do first, long streams
// spliced; and no log, as by default.
func haproxyConfig(at *rig.Addresses) string {
	var b strings.Builder
	b.WriteString("defaults\n mode tcp\n option tcp-smart-accept\n option tcp-smart-connect\n option splice-auto\n" +
		" timeout connect 2s\n timeout client 10m\n timeout server 10m\n")
	for port := rig.LoadPort; port <= rig.LastPort; port++ {
		fmt.Fprintf(&b, "listen port-%d\n bind %s defer-accept\n server workload %s\n",
			port, netip.AddrPortFrom(at.Server, uint16(port)), netip.AddrPortFrom(at.Workload, uint16(port)))
	}
	return b.String()
}
