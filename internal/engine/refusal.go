package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
)

// nameRefused names the object of the state that the kernel or the proxy has refused: the
// error begins with "network NAME: ", "endpoint NAME: ", "service NAME: " or "publish
// PUBLISH: ". For a port in use it is a model.PortTakenError, which names the owner of the
// port. An error about no object, or about several, is returned unchanged.
func (e *Engine) nameRefused(t target, err error) error {
	var bind *proxy.BindError
	var inUse *sockdiag.PortInUseError
	var step *plan.StepError
	switch {
	case errors.As(err, &inUse):
		return taken(t.state, inUse.Proto, inUse.Addr, inUse.Owner, err)
	case errors.As(err, &bind) && errors.Is(bind, syscall.EADDRINUSE):
		owner, lookup := e.cfg.Kernel.Sockets().PortOwner(bind.Proto, bind.Addr)
		return errors.Join(taken(t.state, bind.Proto, bind.Addr, owner, err), lookup)
	case errors.As(err, &bind):
		if p, known := publishAt(t.state, bind.Proto, bind.Addr); known {
			return fmt.Errorf("publish %s: %w", p, err)
		}
	case errors.As(err, &step):
		if name := t.objectWith(step.Object); name != "" {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return err
}

// taken returns the error that names the publish of the port; err if there is none.
func taken(s model.State, proto model.Proto, at netip.AddrPort, owner sockdiag.Owner, err error) error {
	if p, known := publishAt(s, proto, at); known {
		return &model.PortTakenError{Publish: p, Owner: owner.String()}
	}
	return err
}

// publishAt returns the publish of a host port.
func publishAt(s model.State, proto model.Proto, at netip.AddrPort) (model.Publish, bool) {
	i := slices.IndexFunc(s.Publishes, func(p model.Publish) bool {
		return p.Proto == proto && p.HostPorts.Overlaps(model.Port(at.Port())) && p.Accepts(at.Addr())
	})
	if i < 0 {
		return model.Publish{}, false
	}
	return s.Publishes[i], true
}

// objectWith names the network, endpoint or service whose plan has the object. It is empty
// if none has it, or several.
func (t target) objectWith(o plan.Object) string {
	var names []string
	key := o.Key()
	for _, n := range t.networks {
		if n.part.Has(key) {
			names = append(names, "network "+n.Name)
		}
	}
	for _, ep := range t.endpoints {
		if ep.planned.part.Has(key) {
			names = append(names, "endpoint "+ep.Name)
		}
	}
	virtual, is := o.(plan.VirtualAddress)
	for _, v := range t.services {
		if v.planned != nil && v.planned.part.Has(key) || is && slices.Contains(v.Addresses, virtual.Addr) {
			names = append(names, "service "+v.Name)
		}
	}
	if len(names) != 1 {
		return ""
	}
	return names[0]
}
