package endpoints

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

// Join creates the link of an external endpoint for the sandbox at path, which need
// not exist yet. It returns the configuration that the link must get in the sandbox.
// Returns a Fault with code NotFound if the endpoint was not reserved.
func (x *Endpoints) Join(name, path string) (e model.Endpoint, in engine.SandboxConfig, err error) {
	ofDevice := false
	err = x.steps.Do(x.state.Life, func() (err error) {
		a, known := x.state.Desired().Attachment(name)
		if !known {
			return api.Faultf(api.NotFound, "join %s: it was not reserved", name)
		}
		if ofDevice = x.usesDevice(a); !ofDevice {
			e, in, err = x.joinLink(a, path)
		}
		return err
	})
	if ofDevice {
		return x.joinDevice(name, path)
	}
	return e, in, err
}

// joinLink is one attempt to join an external endpoint with a link that the engine moves.
func (x *Endpoints) joinLink(a model.Attachment, path string) (model.Endpoint, engine.SandboxConfig, error) {
	name := a.Name
	a.Sandbox = path
	in, err := x.config(a)
	if err == nil {
		err = x.cfg.Applier.Settle(x.state.Desired().WithAttachment(a))
	}
	if err != nil {
		return model.Endpoint{}, in, fmt.Errorf("join %s to %s: %w", name, a.Network, err)
	}
	x.cfg.Sandboxes.External.Await(name, true)
	x.state.Log.Info("joined", "attachment", name, "network", a.Network, "sandbox", path)
	e, _ := x.state.Applied().Endpoint(name)
	return e, in, nil
}

// joinDevice joins an external endpoint to such a network.
func (x *Endpoints) joinDevice(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	ref := "path:" + filepath.Clean(path)
	if err := x.expectSandbox(name, ref); err != nil {
		return model.Endpoint{}, engine.SandboxConfig{}, err
	}
	if at, err := x.cfg.Resolve(dockerapi.Answering(x.state.Life), ref); err == nil {
		x.state.Warn("join "+name, x.steps.Do(x.state.Life, func() error { return x.cfg.Applier.Reattach(at) }))
	} // else Run reattaches it when the sandbox exists
	x.state.Lock()
	defer x.state.Unlock()
	a, _ := x.state.Desired().Attachment(name)
	if why := x.state.Problems[name]; why != "" {
		delete(x.state.Problems, name)
		return a.Endpoint, engine.SandboxConfig{}, errors.Join(fmt.Errorf("join %s to %s: %s", name, a.Network, why),
			x.state.Save(x.state.Desired().WithAttachment(external.Reserved(a))))
	}
	return a.Endpoint, engine.SandboxConfig{}, nil
}

// expectSandbox saves which sandbox an external endpoint is for.
func (x *Endpoints) expectSandbox(name, ref string) error {
	x.state.Lock()
	defer x.state.Unlock()
	a, known := x.state.Desired().Attachment(name)
	if !known {
		return api.Faultf(api.NotFound, "join %s: it was not reserved", name)
	}
	if a.Ref == ref {
		return nil
	}
	a.Ref, a.Keep = ref, true
	return x.state.Save(x.state.Desired().WithAttachment(a))
}
