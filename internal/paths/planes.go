package paths

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/balance"
	"fairlead/internal/balance/ebpf"
	"fairlead/internal/balance/ipvs"
	"fairlead/internal/balance/nft"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Planes returns every data plane of the balancer, in the order in which they
// are chosen: the cheapest first.
func Planes() []balance.Plane { return []balance.Plane{ebpf.Plane{}, nft.Plane{}, ipvs.Plane{}} }

// Plane returns the data plane of that name.
func Plane(name model.Plane) (balance.Plane, bool) {
	for _, p := range Planes() {
		if p.Name() == name {
			return p, true
		}
	}
	return nil, false
}

// ChoosePlane returns the data plane that the service names, or for auto the
// first that can hold it. The error says of each plane that was asked why it
// cannot, and what would do.
func ChoosePlane(f plan.Facts, v model.VirtualService) (balance.Plane, error) {
	if v.Plane != model.PlaneAuto && v.Plane != "" {
		p, ok := Plane(v.Plane)
		if !ok {
			return nil, fmt.Errorf("there is no plane %q", v.Plane)
		}
		return p, holds(f, p, v)
	}
	var reasons []string
	for _, p := range Planes() {
		err := holds(f, p, v)
		if err == nil {
			return p, nil
		}
		reasons = append(reasons, err.Error())
	}
	return nil, errors.New("no plane can hold it: " + strings.Join(reasons, "; "))
}

// holds says why the plane cannot hold the service here.
func holds(f plan.Facts, p balance.Plane, v model.VirtualService) error {
	if missing := Missing(f, p.Needs(v)); missing != "" {
		return fmt.Errorf("plane %s cannot work here: %s", p.Name(), missing)
	}
	if err := p.Validate(v, f); err != nil {
		return fmt.Errorf("plane %s: %w", p.Name(), err)
	}
	return nil
}
