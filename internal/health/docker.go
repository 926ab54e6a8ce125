package health

import "context"

// dockerCheck passes if the container engine reports the endpoint's container as
// healthy.
type dockerCheck struct{ ask Container }

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
