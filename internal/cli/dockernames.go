package cli

import (
	"context"
	"slices"
	"strings"

	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// dockerNames says how Docker's users call what Docker has asked for, by the
// names that we have for it. Where no engine answers, it knows none.
type dockerNames struct{ networks, containers map[string]string }

// askDocker asks Docker, if anything is of its origin.
func askDocker(ctx context.Context, origins []model.Origin) dockerNames {
	n := dockerNames{map[string]string{}, map[string]string{}}
	if !slices.Contains(origins, model.FromDocker) {
		return n
	}
	names := sandbox.New().Names(ctx, docker.Name)
	for id, name := range names.Networks {
		if ours, err := docker.NetworkName(id); err == nil {
			n.networks[ours] = name
		}
	}
	for id, name := range names.Containers {
		if ours, err := docker.EndpointName(id); err == nil {
			n.containers[ours] = name
		}
	}
	return n
}

// network is a network's name for people.
func (n dockerNames) network(name string) string {
	if theirs, ok := n.networks[name]; ok {
		return name + " (" + theirs + ")"
	}
	return name
}

// endpoint is an endpoint's name for people: that of its container.
func (n dockerNames) endpoint(name string) string {
	if theirs, ok := n.containers[name]; ok {
		return theirs
	}
	return name
}

// sandbox is the reference of an attachment's sandbox for people.
func (n dockerNames) sandbox(a model.Attachment) string {
	if theirs, ok := n.containers[a.Name]; ok {
		return string(sandbox.Container) + ":" + theirs
	}
	if strings.HasPrefix(a.Ref, "docker:") {
		return string(model.FromDocker)
	}
	return a.Ref
}
