package daemon

import (
	"context"
	"fmt"

	"fairlead/internal/daemon/upstream"
	"fairlead/internal/model"
)

// containerHealth implements the checks of type docker.
func (s *services) containerHealth(_ context.Context, endpoint string) (healthy bool, detail string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, attached := s.desired.Attachment(endpoint)
	c, known := s.containers[a.Ref]
	switch {
	case !attached:
		return false, "", fmt.Errorf("it is not a sandbox that is attached on this host: use another check")
	case !known:
		return false, "",
			fmt.Errorf("no container engine has reported sandbox %s: start its container engine, or use another check",
				a.Ref)
	case c.Health == "":
		return false, "", fmt.Errorf("container %s has no health check: add one, or use another check", c.Name)
	}
	return c.Health == "healthy", "the container is " + c.Health, nil
}

// needContainers makes the balancer follow containers, if there is a service, or if the
// gateway may select containers.
func (s *services) needContainers(w model.Desired) {
	if len(w.Services) == 0 && !upstream.HasSelector(w.Gateway) && w.ClusterGateway == nil {
		return
	}
	s.needOnce.Do(func() { close(s.needed) })
}
