package daemon

import (
	"errors"
	"fmt"
	"path/filepath"

	"fairlead/internal/api"
	"fairlead/internal/daemon/external"
	"fairlead/internal/dockerapi"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// usesDevice reports whether the external endpoint's network moves whole devices into
// sandboxes. Then there is no link for the engine to move: the daemon moves the device
// itself and sets its addresses and routes, at once or when the sandbox exists.
func (x *externals) usesDevice(a model.Attachment) bool {
	n, _ := model.State{Networks: x.desired.Networks}.Network(a.Network)
	return n.Traits().MovesDevice
}

// joinDevice joins an external endpoint to such a network.
func (x *externals) joinDevice(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	ref := "path:" + filepath.Clean(path)
	if err := x.expectSandbox(name, ref); err != nil {
		return model.Endpoint{}, engine.SandboxConfig{}, err
	}
	if at, err := x.cfg.Sandboxes.Resolve(dockerapi.Answering(x.life), ref); err == nil {
		x.warn("join "+name, x.step(x.life, func() error { return x.applier.reattach(at) }))
	} // else Run reattaches it when the sandbox exists
	x.mu.Lock()
	defer x.mu.Unlock()
	a, _ := x.desired.Attachment(name)
	if why := x.problems[name]; why != "" {
		delete(x.problems, name)
		return a.Endpoint, engine.SandboxConfig{}, errors.Join(fmt.Errorf(
			"join %s to %s: %s", name, a.Network, why), x.save(x.desired.WithAttachment(external.Reserved(a))))
	}
	return a.Endpoint, engine.SandboxConfig{}, nil
}

// expectSandbox saves which sandbox an external endpoint is for.
func (x *externals) expectSandbox(name, ref string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a, known := x.desired.Attachment(name)
	if !known {
		return api.Faultf(api.NotFound, "join %s: it was not reserved", name)
	}
	if a.Ref == ref {
		return nil
	}
	a.Ref, a.Keep = ref, true
	return x.save(x.desired.WithAttachment(a))
}
