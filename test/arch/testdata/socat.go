package peer

import (
	"context"
	"fmt"
	"os/exec"

	"fairlead/internal/child"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// socat forwards the ports of a sandbox of Fairlead's engine with socat.
type socat struct{ *rig.Engine }

func newSocat(p suite.Path) rig.Maker { return &socat{rig.NewEngine(p)} }

// Needs implements rig.Maker.
func (*socat) Needs() rig.Needs {
	return rig.Needs{Programs: []rig.Program{{Name: "socat", Package: "socat"}}}
}

// Start implements rig.Maker. It starts one socat per port.
func (s *socat) Start(ctx context.Context, r *rig.Rig) error {
	if err := s.Engine.Start(ctx, r); err != nil {
		return err
	}
	path, err := program.Find("socat")
	if err != nil {
		return err
	}
	for port := rig.LoadPort; port <= rig.LastPort; port++ {
		cmd := exec.Command(path, fmt.Sprintf("TCP4-LISTEN:%d,fork", port),
			fmt.Sprintf("TCP4:%s:%d", s.Addresses().Workload, port))
		p, err := child.Start(ctx, cmd, r.Place(r.World.Server(), rig.ProxyGroup))
		if err != nil {
			return fmt.Errorf("start socat: %w", err)
		}
		r.Keep(p)
	}
	return nil
}

// Proof implements rig.Maker.
func (s *socat) Proof(w rig.Window, _ *result.Proof) *result.Proof {
	return rig.CPUProof(s.Path.Peer.Name, w.Ledger.Proxy)
}
