package health

import (
	"net/netip"
	"slices"

	"fairlead/internal/model"
)

// View tells what is known of a real server of a service; false if nothing is,
// and then it is taken for well.
type View func(model.RealServer) (Condition, bool)

// Mode says what keeps a pool from being used as the checks say.
type Mode string

// The modes; the empty one is that of a pool that is well.
const (
	// ModePanic uses all real servers: so few are up that the checks are not
	// believed.
	ModePanic Mode = "panic"
	// ModeSorry sends new clients to the sorry server.
	ModeSorry Mode = "sorry"
	// ModeEmpty has no real server to send clients to.
	ModeEmpty Mode = "empty"
)

// Pool sums up the real servers of a service.
type Pool struct {
	Mode Mode `json:"mode,omitempty"`
	// Up is how many real servers may get new flows by what their checks say, of
	// so many that the administrator lets have any.
	Up int `json:"up"`
	Of int `json:"of"`
}

// Judge sums up the service's real servers. The panic threshold comes first:
// where the checks are not believed, no sorry server is needed.
func Judge(v model.VirtualService, view View) Pool {
	var p Pool
	well := 0
	for _, r := range v.Reals {
		if r.State != model.RealUp || r.Weight == 0 || !r.Address.IsValid() {
			continue
		}
		p.Of++
		c := conditionOf(view, r)
		if c.State != model.RealDown {
			well++
		}
		if c.State == model.RealUp && c.Share > 0 {
			p.Up++
		}
	}
	switch {
	case p.Of > 0 && well*100 < v.Panic*p.Of:
		p.Mode = ModePanic
	case p.Up < max(1, v.Quorum) && v.Sorry.IsValid():
		p.Mode = ModeSorry
	case p.Up == 0:
		p.Mode = ModeEmpty
	}
	return p
}

// Effective returns the service with the states and weights that its planes
// shall hold. What the administrator has said of a server stays. A sorry server
// in use is the only one that gets new flows: what is up then drains, and what
// is down stays in the list, so that the others keep their places in a table.
//
// Where the check has a slow start or an agent, weights are counted in
// hundredths, lest the small ones have no steps between none and all.
func Effective(v model.VirtualService, view View) model.VirtualService {
	mode := Judge(v, view).Mode
	scale := scaleOf(v)
	v.Reals = slices.Clone(v.Reals)
	for i, r := range v.Reals {
		if !r.Address.IsValid() {
			continue
		}
		v.Reals[i] = effective(r, conditionOf(view, r), mode, scale)
	}
	if mode == ModeSorry {
		v.Reals = slices.DeleteFunc(v.Reals, func(r model.RealServer) bool {
			return netip.AddrPortFrom(r.Address, r.Port) == v.Sorry
		})
		v.Reals = append(v.Reals, model.RealServer{Address: v.Sorry.Addr(), Port: v.Sorry.Port(), Weight: 1})
	}
	return v
}

func effective(r model.RealServer, c Condition, mode Mode, scale float64) model.RealServer {
	if mode == ModePanic && c.State == model.RealDown {
		c = Condition{Share: 100}
	}
	if r.State == model.RealUp {
		r.State = c.State
		if mode == ModeSorry && r.State == model.RealUp {
			r.State = model.RealDraining
		}
	}
	if scale != 0 {
		weight := min(model.MaxWeight, int(float64(r.Weight*c.Share)*scale))
		if r.Weight > 0 && c.Share > 0 {
			weight = max(1, weight)
		}
		r.Weight = weight
	}
	return r
}

// scaleOf returns what to multiply weights times percent by, so that the
// greatest is in bounds; 0 for weights that are never less than whole.
func scaleOf(v model.VirtualService) float64 {
	if v.Check.SlowStart == 0 && v.Check.Agent == 0 {
		return 0
	}
	most := 0
	for _, r := range v.Reals {
		most = max(most, r.Weight)
	}
	return min(1, model.MaxWeight/float64(max(1, most)*100))
}

func conditionOf(view View, r model.RealServer) Condition {
	if c, ok := view(r); ok {
		return c
	}
	return Condition{Share: 100}
}
