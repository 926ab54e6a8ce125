package daemon

import (
	"errors"
	"fmt"
	"path/filepath"

	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// lends reports whether the guest's network hands over whole devices: there is
// no link for its engine to take then, and we put the device into the sandbox
// ourselves, with its addresses and routes, now or when the sandbox is there.
func (d *Daemon) lends(a model.Attachment) bool {
	n, _ := model.State{Networks: d.desired.Networks}.Network(a.Network)
	return n.Driver == model.DriverDevice
}

// offer joins a guest to such a network.
func (d *Daemon) offer(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	ref := "path:" + filepath.Clean(path)
	if err := d.await(name, ref); err != nil {
		return model.Endpoint{}, engine.SandboxConfig{}, err
	}
	if at, err := d.cfg.Sandboxes.Resolve(d.life, ref); err == nil {
		d.comeBack(at)
	} // otherwise we are told when it is there
	d.mu.Lock()
	defer d.mu.Unlock()
	a, _ := d.attachment(name)
	if why := d.problems[name]; why != "" {
		delete(d.problems, name)
		return a.Endpoint, engine.SandboxConfig{}, errors.Join(fmt.Errorf("join %s to %s: %s", name, a.Network, why), d.save(with(d.desired, unlent(a))))
	}
	return a.Endpoint, engine.SandboxConfig{}, nil
}

// await notes which sandbox a guest is for.
func (d *Daemon) await(name, ref string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.attachment(name)
	if !known {
		return fault(NotFound, "join %s: it was not reserved", name)
	}
	if a.Ref == ref {
		return nil
	}
	a.Ref, a.Keep = ref, true
	return d.save(with(d.desired, a))
}

// unlent is a guest that is for no sandbox.
func unlent(a model.Attachment) model.Attachment {
	a.Ref, a.Keep, a.Sandbox, a.Namespace = "docker:"+a.Name, false, "", ""
	return a
}
