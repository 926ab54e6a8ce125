package health

import (
	"context"
	"errors"

	"fairlead/internal/model"
)

// dockerCheck passes if the container engine reports the endpoint's container as
// healthy.
type dockerCheck struct{ ask Container }

var dockerType = Type{Name: model.CheckDocker, checker: newDocker}

func newDocker(_ model.Check, m Means) (Checker, error) {
	if m.Container == nil {
		return nil, errors.New("no container engine is configured: use another check")
	}
	return dockerCheck{m.Container}, nil
}

// Check implements Checker. If the engine cannot be asked, the result is void.
func (d dockerCheck) Check(ctx context.Context, at Target) Result {
	if at.Endpoint == "" {
		return failed("it is not a container on this host: use another type of check").as(Unhealthy)
	}
	switch healthy, detail, err := d.ask(ctx, at.Endpoint); {
	case err != nil:
		r := failed("ask the container engine: %v", err)
		r.Void = true
		return r
	case !healthy:
		return failed("%s", detail).as(Unhealthy)
	default:
		return passed("%s", detail)
	}
}
