package command

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// DockerNames maps Fairlead's names for Docker's networks and endpoints to the
// names that Docker's users see. It is empty if no engine answers.
type DockerNames struct{ Networks, Containers map[string]string }

// AskDocker asks the Docker engine for names, if one of the origins is Docker.
func AskDocker(ctx context.Context, origins []model.Origin) DockerNames {
	n := DockerNames{map[string]string{}, map[string]string{}}
	if !slices.Contains(origins, model.FromDocker) {
		return n
	}
	names := sandbox.New().Names(ctx, docker.Name)
	for id, name := range names.Networks {
		if internal, err := docker.NetworkName(id); err == nil {
			n.Networks[internal] = name
		}
	}
	for id, name := range names.Containers {
		if internal, err := docker.EndpointName(id); err == nil {
			n.Containers[internal] = name
		}
	}
	return n
}

// Network returns a network's name for display.
func (n DockerNames) Network(name string) string {
	if shown, ok := n.Networks[name]; ok {
		return name + " (" + shown + ")"
	}
	return name
}

// Endpoint returns an endpoint's name for display: that of its container.
func (n DockerNames) Endpoint(name string) string {
	if shown, ok := n.Containers[name]; ok {
		return shown
	}
	return name
}

// Sandbox returns the reference of an attachment's sandbox for display.
func (n DockerNames) Sandbox(a model.Attachment) string {
	if shown, ok := n.Containers[a.Name]; ok {
		return string(sandbox.Container) + ":" + shown
	}
	if strings.HasPrefix(a.Ref, "docker:") {
		return string(model.FromDocker)
	}
	return a.Ref
}

// dockerName matches Fairlead's names for Docker's endpoints and networks.
var dockerName = regexp.MustCompile(`\bdocker-[0-9a-f]{8,}\b`)

// NamesDocker reports whether a text has a name of an endpoint or a network of Docker.
func NamesDocker(s string) bool { return dockerName.MatchString(s) }

// Text replaces the names of endpoints and networks with those that Docker's users
// gave their containers and networks.
func (n DockerNames) Text(s string) string {
	return dockerName.ReplaceAllStringFunc(s, func(name string) string {
		if shown, ok := n.Networks[name]; ok {
			return shown
		}
		return n.Endpoint(name)
	})
}

// namedError is an error whose text has the names of containers.
type namedError struct {
	error
	text string
}

func (e namedError) Error() string { return e.text }

// Unwrap returns the error as the daemon returned it.
func (e namedError) Unwrap() error { return e.error }

// nameContainers returns the error with the names of containers. It asks Docker
// only if the error names an endpoint or a network of Docker.
func nameContainers(ctx context.Context, err error) error {
	if err == nil || !NamesDocker(err.Error()) {
		return err
	}
	return AskDocker(ctx, []model.Origin{model.FromDocker}).error(err)
}

func (n DockerNames) error(err error) error { return namedError{err, n.Text(err.Error())} }
