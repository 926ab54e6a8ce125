package paths

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/balance"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Plane returns the data plane of that name.
func Plane(name model.Plane) (balance.Plane, bool) {
	for _, p := range Planes() {
		if p.Name() == name {
			return p, true
		}
	}
	return nil, false
}

// ChoosePlane returns the data plane that the service names, or for auto the first
// one that supports the service. The error has, for each plane that was tried, the
// reason and what to change.
func ChoosePlane(f plan.Facts, v model.VirtualService, in balance.Sandboxes) (balance.Plane, error) {
	if v.Plane != model.PlaneAuto && v.Plane != "" {
		p, ok := Plane(v.Plane)
		if !ok {
			return nil, fmt.Errorf("there is no data plane %q", v.Plane)
		}
		return p, supports(f, p, v, in)
	}
	var reasons []string
	for _, p := range Planes() {
		err := supports(f, p, v, in)
		if err == nil && p.Name().Traits().AtLinks {
			err = unprotected(f, p, v)
		}
		if err == nil {
			return p, nil
		}
		reasons = append(reasons, err.Error())
	}
	return nil, errors.New("no data plane supports it: " + strings.Join(reasons, "; "))
}

// unprotected returns an error if an IPsec policy of the host covers clients of the
// service, because packets of a plane whose programs are at the links bypass IPsec.
func unprotected(f plan.Facts, p balance.Plane, v model.VirtualService) error {
	for _, ports := range v.Ports {
		if reason := protected(f, v.Proto, v.Addresses, ports); reason != "" {
			return fmt.Errorf("plane %s: %s", p.Name(), reason)
		}
	}
	return nil
}

// supports returns an error if the plane does not support the service on this host.
func supports(f plan.Facts, p balance.Plane, v model.VirtualService, in balance.Sandboxes) error {
	if missing := Missing(f, p.Needs(v)); missing != "" {
		return fmt.Errorf("this kernel does not support plane %s: %s", p.Name(), missing)
	}
	if err := p.Validate(v, in, f); err != nil {
		return fmt.Errorf("plane %s: %w", p.Name(), err)
	}
	return nil
}
