package rig

import "fairlead/internal/lab/topology"

// SetConditions sets the suite's network conditions on the wires of a world: for what
// each end sends, so that they apply to each direction. It must be called after the path
// has been made, because a link that is moved to a sandbox loses them.
func (r *Rig) SetConditions(w *topology.World) error {
	if r.netem == nil {
		return nil
	}
	if siteOf(r.Path).exposed == topology.SecondWire {
		// The server's end of the wire is in the sandbox.
		if err := w.SetClientNetem(topology.SecondWire, *r.netem); err != nil {
			return err
		}
		return w.SetSandboxNetem(Workload, inside.Name, *r.netem)
	}
	wires := []string{topology.Wire}
	if r.Path.Wires > 1 {
		wires = append(wires, topology.SecondWire)
	}
	for _, name := range wires {
		if err := w.SetNetem(name, *r.netem); err != nil {
			return err
		}
	}
	return nil
}
