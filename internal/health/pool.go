package health

import (
	"net/netip"
	"slices"

	"fairlead/internal/model"
)

// View returns the condition of a real server of a service; false if it is
// unknown, and then the server counts as up.
type View func(model.RealServer) (Condition, bool)

// Mode is the reason why a service does not use exactly the servers that are up.
type Mode string

// The modes. The empty mode is the normal one.
const (
	// ModePanic uses all real servers: so few are up that the checks are ignored.
	ModePanic Mode = "panic"
	// ModeSorry sends new clients to the sorry server.
	ModeSorry Mode = "sorry"
	// ModeEmpty has no real server for clients.
	ModeEmpty Mode = "empty"
)

// Pool summarizes the real servers of a service.
type Pool struct {
	Mode Mode `json:"mode,omitempty"`
	// Up is the number of real servers that may get new flows according to their
	// checks. Of is the number of those that the administrator has enabled.
	Up int `json:"up"`
	Of int `json:"of"`
}

// Judge summarizes the service's real servers. The panic threshold takes
// precedence: if the checks are ignored, no sorry server is needed.
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

// Effective returns the service with the states and weights that its data planes
// should have. States that the administrator set stay. If the sorry server is in
// use, only it gets new flows: servers that are up drain, and servers that are
// down stay in the list, so that the other ones keep their places in a table.
//
// If the check has a slow start or an agent, weights are multiplied by 100, so that
// small weights have steps between 0 and all.
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

// scaleOf returns the factor for weight times percent, such that the greatest
// weight stays within its limit; 0 if weights are never scaled.
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
