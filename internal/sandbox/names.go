package sandbox

import (
	"context"

	"fairlead/internal/dockerapi"
)

// Names are the container engines' names of the networks of one driver, and of
// the containers in them.
type Names struct {
	// Networks maps the IDs of networks to names, and Containers the IDs of
	// endpoints to names.
	Networks, Containers map[string]string
}

// Names asks all engines for the names. It ignores engines that do not answer.
func (f Finder) Names(ctx context.Context, driver string) Names {
	n := Names{map[string]string{}, map[string]string{}}
	for _, socket := range f.Engines {
		e := dockerapi.Unix(socket)
		all, err := e.Networks(ctx, dockerapi.Filter{"driver": {driver}})
		if err != nil {
			continue
		}
		for _, network := range all {
			n.add(ctx, e, network.ID)
		}
	}
	return n
}

// add asks an engine for the containers of a network, and adds the names.
func (n Names) add(ctx context.Context, e *dockerapi.Engine, id string) {
	network, err := e.Network(ctx, id)
	if err != nil {
		return // the network was removed meanwhile
	}
	n.Networks[id] = network.Name
	for _, c := range network.Containers {
		n.Containers[c.EndpointID] = c.Name
	}
}
