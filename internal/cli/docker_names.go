package cli

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"fairlead/internal/explain/flow"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// dockerNames maps Fairlead's names for Docker's networks and endpoints to the
// names that Docker's users see. It is empty if no engine answers.
type dockerNames struct{ networks, containers map[string]string }

// askDocker asks the Docker engine for names, if one of the origins is Docker.
func askDocker(ctx context.Context, origins []model.Origin) dockerNames {
	n := dockerNames{map[string]string{}, map[string]string{}}
	if !slices.Contains(origins, model.FromDocker) {
		return n
	}
	names := sandbox.New().Names(ctx, docker.Name)
	for id, name := range names.Networks {
		if internal, err := docker.NetworkName(id); err == nil {
			n.networks[internal] = name
		}
	}
	for id, name := range names.Containers {
		if internal, err := docker.EndpointName(id); err == nil {
			n.containers[internal] = name
		}
	}
	return n
}

// network returns a network's name for display.
func (n dockerNames) network(name string) string {
	if shown, ok := n.networks[name]; ok {
		return name + " (" + shown + ")"
	}
	return name
}

// endpoint returns an endpoint's name for display: that of its container.
func (n dockerNames) endpoint(name string) string {
	if shown, ok := n.containers[name]; ok {
		return shown
	}
	return name
}

// sandbox returns the reference of an attachment's sandbox for display.
func (n dockerNames) sandbox(a model.Attachment) string {
	if shown, ok := n.containers[a.Name]; ok {
		return string(sandbox.Container) + ":" + shown
	}
	if strings.HasPrefix(a.Ref, "docker:") {
		return string(model.FromDocker)
	}
	return a.Ref
}

// dockerName matches Fairlead's names for Docker's endpoints and networks.
var dockerName = regexp.MustCompile(`\bdocker-[0-9a-f]{8,}\b`)

// text replaces the names of endpoints and networks with those that Docker's users
// gave their containers and networks.
func (n dockerNames) text(s string) string {
	return dockerName.ReplaceAllStringFunc(s, func(name string) string {
		if shown, ok := n.networks[name]; ok {
			return shown
		}
		return n.endpoint(name)
	})
}

// explanation replaces the names in the texts of an explanation.
func (n dockerNames) explanation(e *flow.Explanation) {
	for i := range e.Hops {
		h := &e.Hops[i]
		h.Where, h.What, h.Why, h.Seen = n.text(h.Where), n.text(h.What), n.text(h.Why), n.text(h.Seen)
	}
	e.Verdict = n.text(e.Verdict)
	for _, texts := range [][]string{e.Caveats, e.Notes} {
		for i := range texts {
			texts[i] = n.text(texts[i])
		}
	}
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
	if err == nil || !dockerName.MatchString(err.Error()) {
		return err
	}
	return askDocker(ctx, []model.Origin{model.FromDocker}).error(err)
}

func (n dockerNames) error(err error) error { return namedError{err, n.text(err.Error())} }
