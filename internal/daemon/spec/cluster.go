package spec

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/model"
)

// ClusterChange is one change of an object of the cluster.
type ClusterChange struct {
	// Object is e.g. "network web". Service is the name of a service, empty for a network.
	Object, Service string
	// In returns a desired state with the change.
	In func(model.Desired) (model.Desired, error)
}

// Problem returns the text of an error, which begins with its object.
func (c ClusterChange) Problem(err error) string {
	if strings.HasPrefix(err.Error(), c.Object+": ") {
		return err.Error()
	}
	return c.Object + ": " + err.Error()
}

// ClusterChecks are what the host says of objects of the cluster.
type ClusterChecks struct {
	// Overlap returns an error if a network overlaps a subnet of the host.
	Overlap func(model.Desired, model.Network) error
	// Acceptable returns an error if the host cannot have the network of a desired state.
	Acceptable func(model.Desired, model.Network) error
	// Failed reports whether a service is desired and could not be applied.
	Failed func(service string) bool
}

// ClusterChanges compares the objects of the cluster with the desired state. Deletions
// come first, and networks before services.
func ClusterChanges(w model.Desired, networks []model.Network, services []model.VirtualService,
	c ClusterChecks) []ClusterChange {
	var changes []ClusterChange
	wanted := map[string]bool{} // by object
	for _, v := range services {
		wanted["service "+v.Name] = true
	}
	for _, n := range networks {
		wanted["network "+n.Name] = true
	}
	haveServices, haveNetworks := map[string]model.VirtualService{}, map[string]model.Network{}
	for _, v := range w.Services {
		haveServices[v.Name] = v
		if v.Origin == model.FromCluster && !wanted["service "+v.Name] {
			changes = append(changes, ClusterChange{"service " + v.Name, v.Name, withoutService(v.Name)})
		}
	}
	for _, n := range w.Networks {
		haveNetworks[n.Name] = n
		if n.Origin == model.FromCluster && !wanted["network "+n.Name] {
			changes = append(changes, ClusterChange{"network " + n.Name, "", withoutNetwork(n.Name)})
		}
	}
	for _, n := range networks {
		n.Origin = model.FromCluster
		if have, known := haveNetworks[n.Name]; !known || !have.Equal(n) {
			changes = append(changes, ClusterChange{"network " + n.Name, "", c.withNetwork(n)})
		}
	}
	for _, v := range services {
		v.Origin = model.FromCluster
		if have, known := haveServices[v.Name]; !known || !have.Equal(v) || c.Failed(v.Name) {
			changes = append(changes, ClusterChange{"service " + v.Name, v.Name, withService(v)})
		}
	}
	return changes
}

func withoutService(name string) func(model.Desired) (model.Desired, error) {
	return func(w model.Desired) (model.Desired, error) {
		return w.WithoutService(name), nil
	}
}

func withoutNetwork(name string) func(model.Desired) (model.Desired, error) {
	return func(w model.Desired) (model.Desired, error) {
		for _, a := range w.Attachments {
			if a.Network == name {
				return w, fmt.Errorf("the cluster no longer has this network, and %s is still attached to it: "+
					"detach it", a.Name)
			}
		}
		return w.WithoutNetwork(name), nil
	}
}

func (c ClusterChecks) withNetwork(n model.Network) func(model.Desired) (model.Desired, error) {
	return func(w model.Desired) (model.Desired, error) {
		if have, known := w.Network(n.Name); known && have.Origin != model.FromCluster {
			return w, errors.New("this host has another network with this name: remove that one")
		}
		if err := c.Overlap(w, n); err != nil {
			return w, err
		}
		next := w.WithNetwork(n)
		if err := c.Acceptable(next, n); err != nil {
			return w, err
		}
		return next, nil
	}
}

func withService(v model.VirtualService) func(model.Desired) (model.Desired, error) {
	return func(w model.Desired) (model.Desired, error) {
		if err := v.Validate(); err != nil {
			return w, err
		}
		if have, known := w.Service(v.Name); known && have.Origin != model.FromCluster {
			return w, errors.New("this host has another service with this name: remove that one")
		}
		return w.WithService(v), nil
	}
}
