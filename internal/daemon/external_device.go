package daemon

import (
	"errors"
	"fmt"
	"path/filepath"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// usesDevice reports whether the external endpoint's network moves whole devices into
// sandboxes. Then there is no link for the engine to move: the daemon moves the device
// itself and sets its addresses and routes, at once or when the sandbox exists.
func (d *Daemon) usesDevice(a model.Attachment) bool {
	n, _ := model.State{Networks: d.desired.Networks}.Network(a.Network)
	return n.Traits().MovesDevice
}

// joinDevice joins an external endpoint to such a network.
func (d *Daemon) joinDevice(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	ref := "path:" + filepath.Clean(path)
	if err := d.expectSandbox(name, ref); err != nil {
		return model.Endpoint{}, engine.SandboxConfig{}, err
	}
	if at, err := d.cfg.Sandboxes.Resolve(d.life, ref); err == nil {
		d.reattach(at)
	} // else Run reattaches it when the sandbox exists
	d.mu.Lock()
	defer d.mu.Unlock()
	a, _ := d.desired.Attachment(name)
	if why := d.problems[name]; why != "" {
		delete(d.problems, name)
		return a.Endpoint, engine.SandboxConfig{}, errors.Join(fmt.Errorf(
			"join %s to %s: %s", name, a.Network, why), d.save(d.desired.WithAttachment(external.Reserved(a))))
	}
	return a.Endpoint, engine.SandboxConfig{}, nil
}

// expectSandbox saves which sandbox an external endpoint is for.
func (d *Daemon) expectSandbox(name, ref string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.desired.Attachment(name)
	if !known {
		return api.Faultf(api.NotFound, "join %s: it was not reserved", name)
	}
	if a.Ref == ref {
		return nil
	}
	a.Ref, a.Keep = ref, true
	return d.save(d.desired.WithAttachment(a))
}
