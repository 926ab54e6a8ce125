package health

import "context"

// dockerCheck passes where the container engine says that the endpoint's
// container is healthy.
type dockerCheck struct{ ask Container }

// Check is Checker's. An engine that cannot be asked says nothing about the
// server.
func (d dockerCheck) Check(ctx context.Context, at Target) Result {
	if at.Endpoint == "" {
		return failed("it is no container here: check it otherwise").as(Unhealthy)
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
