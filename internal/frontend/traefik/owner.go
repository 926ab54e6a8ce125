package traefik

import (
	"fmt"
	"strings"
)

// The labels from which owners follow.
const (
	composeProject = "com.docker.compose.project"
	composeService = "com.docker.compose.service"
	stackNamespace = "com.docker.stack.namespace"
)

// owner is what the definitions of a container belong to. All containers that belong to nothing have
// one owner together, the zero value: replicas and deployments of "docker run" have nothing else in
// common.
type owner struct{ kind, name string }

// The kinds of owners, as problems name them.
const (
	ofProject   = "compose project"
	ofStack     = "stack"
	ofService   = "swarm service"
	ofContainer = "container"
)

// ownerOf returns the owner of a container's definitions. If scoped, a container that belongs to nothing
// is an owner itself.
func ownerOf(c *Container, scoped bool) owner {
	project, stack := c.Labels[composeProject], c.Labels[stackNamespace]
	switch {
	case c.Service != "" && stack != "":
		return owner{ofStack, stack}
	case c.Service != "":
		return owner{ofService, c.Service}
	case project != "":
		return owner{ofProject, project}
	case scoped:
		return owner{ofContainer, c.Name}
	}
	return owner{}
}

// shared reports whether the owner is that of all containers that belong to nothing.
func (o owner) shared() bool { return o == owner{} }

// String returns the owner in the words of problems.
func (o owner) String() string {
	if o.shared() {
		return "containers without a project"
	}
	return o.kind + " " + o.name
}

// inName returns the part of a qualified name that stands for the owner. Different owners have
// different ones.
func (o owner) inName() string {
	switch o.kind {
	case ofProject:
		return escaped(o.name)
	case ofStack:
		return "stack:" + escaped(o.name)
	case ofService:
		return "service:" + escaped(o.name)
	}
	return "container:" + escaped(o.name)
}

// escaped replaces all characters but letters, digits, "-" and "_" by %XX, so that a name of an owner
// cannot look like two parts of a qualified name.
func escaped(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
