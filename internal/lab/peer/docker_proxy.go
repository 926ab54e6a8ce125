package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// dockerProxy publishes ports of a sandbox of Fairlead's engine with Docker's
// docker-proxy.
type dockerProxy struct{ *rig.Engine }

func newDockerProxy(p suite.Path) rig.Maker { return &dockerProxy{rig.NewEngine(p)} }

// Needs implements rig.Maker.
func (*dockerProxy) Needs() rig.Needs {
	return rig.Needs{Programs: []rig.Program{{Name: "docker-proxy", Package: "docker.io"}}}
}

// Start implements rig.Maker. It starts one docker-proxy per port and protocol.
func (d *dockerProxy) Start(ctx context.Context, r *rig.Rig) error {
	if err := d.Engine.Start(ctx, r); err != nil {
		return err
	}
	for port := rig.LoadPort; port <= rig.LastPort; port++ {
		for _, proto := range []string{"tcp", "udp"} {
			p, err := startDockerProxy(ctx, r, proto, port)
			if err != nil {
				return fmt.Errorf("start docker-proxy: %w", err)
			}
			r.Keep(p)
		}
	}
	return nil
}

// startDockerProxy starts one docker-proxy in the same manner as dockerd, and
// waits until it reports on descriptor 3 that it listens.
func startDockerProxy(ctx context.Context, r *rig.Rig, proto string, port int) (*child.Process, error) {
	path, err := program.Find("docker-proxy")
	if err != nil {
		return nil, err
	}
	at := r.Addresses()
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd := exec.Command(path, "-proto", proto, "-host-ip", at.Unspecified.String(), "-host-port", fmt.Sprint(port),
		"-container-ip", at.Workload.String(), "-container-port", fmt.Sprint(port))
	cmd.ExtraFiles = []*os.File{theirs}
	p, err := child.Start(ctx, cmd, r.Place(r.World.Server(), rig.ProxyGroup))
	theirs.Close()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(ready).ReadString('\n')
	if strings.TrimSpace(line) != "0" {
		return nil, errors.Join(fmt.Errorf("it printed %q", line), err, p.Kill())
	}
	return p, nil
}

// Proof implements rig.Maker.
func (d *dockerProxy) Proof(w rig.Window, _ *result.Proof) *result.Proof {
	return rig.CPUProof(d.Path.Peer.Name, w.Ledger.Proxy)
}
