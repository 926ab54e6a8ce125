package provider

import (
	"context"
	"net/netip"
	"net/url"
	"time"

	"fairlead/internal/dockerapi"
)

// The parts of a swarm's objects that the gateway needs, as the engine's API names them.
type (
	service struct {
		ID        string
		CreatedAt time.Time
		Spec      struct {
			Name   string
			Labels map[string]string
		}
		Endpoint struct {
			VirtualIPs []struct{ NetworkID, Addr string }
		}
	}

	task struct {
		ID, ServiceID, NodeID string
		Slot                  int
		DesiredState          string
		Status                struct {
			State           string
			ContainerStatus struct{ ContainerID string }
		}
		Spec struct {
			ContainerSpec struct{ StopSignal string }
		}
		NetworksAttachments []struct {
			Network   network
			Addresses []string
		}
	}

	network struct {
		ID   string
		Spec struct {
			Name    string
			Ingress bool
		}
	}

	node struct {
		ID     string
		Status struct{ Addr string }
	}
)

// The state of a task, and the state that the swarm wants it to have.
const running = "running"

// runs reports whether the task's container runs. A container with a health check is healthy then.
func (t *task) runs() bool { return t.Status.State == running }

func readServices(ctx context.Context, e *dockerapi.Engine) (all []service, err error) {
	err = e.Get(ctx, "/services", &all)
	return all, err
}

// readTasks returns the tasks of all services but those that were replaced long ago.
func readTasks(ctx context.Context, e *dockerapi.Engine) (all []task, err error) {
	filter := url.Values{"filters": {`{"desired-state":["running","shutdown"]}`}}
	err = e.Get(ctx, "/tasks?"+filter.Encode(), &all)
	return all, err
}

// readNodes returns the addresses of the swarm's nodes by their ID.
func readNodes(ctx context.Context, e *dockerapi.Engine) (map[string]netip.Addr, error) {
	var all []node
	if err := e.Get(ctx, "/nodes", &all); err != nil {
		return nil, err
	}
	addresses := map[string]netip.Addr{}
	for _, n := range all {
		if a, err := netip.ParseAddr(n.Status.Addr); err == nil {
			addresses[n.ID] = a
		}
	}
	return addresses, nil
}
