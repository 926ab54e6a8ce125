package traefik

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// defaultRule is that of Traefik's Docker provider.
const defaultRule = "Host(`{{ normalize .Name }}`)"

// Docker turns containers into configurations, and remembers the part of each container
// for the next time. It is for one goroutine.
type Docker struct {
	opt     *DockerOptions
	rule    *template.Template
	ruleErr error
	// accept is nil if the constraints are faulty.
	accept   constraint
	problems []Problem
	// scoped keeps references and servers in their project.
	scoped bool
	parts  map[*Container]*part
	// last is the index of the last configuration.
	last *index
}

// part is what a container adds to the configuration.
type part struct {
	config    gateway.Config
	problems  []Problem
	container string
	created   time.Time
	owner     owner
	ready     bool
	// definitions are all that the labels define, own the same by their keys.
	definitions []*definition
	own         map[key]*definition
}

// source returns the container as the source of problems.
func (p *part) source() string { return "container " + p.container }

// describe returns the container and its owner.
func (p *part) describe() string {
	if p.owner.shared() || p.owner.kind == ofContainer {
		return p.source()
	}
	return p.source() + " of " + p.owner.String()
}

// sameStore reports whether two parts set the default TLS store equally.
func (p *part) sameStore(other *part) bool {
	return reflect.DeepEqual(p.config.TLS.Stores["default"], other.config.TLS.Stores["default"])
}

// NewDocker returns a Docker with these options.
func NewDocker(opt DockerOptions) *Docker {
	d := &Docker{opt: &opt, scoped: opt.LabelScope == gateway.LabelScopeProject}
	var err error
	d.rule, d.ruleErr = parseTemplate("defaultRule", cmp.Or(opt.DefaultRule, defaultRule))
	if d.ruleErr != nil {
		d.problems = append(d.problems, Problem{Source: "providers.docker.defaultRule", Text: d.ruleErr.Error()})
	}
	if d.accept, err = parseConstraints(opt.Constraints); err != nil {
		d.problems = append(d.problems, Problem{Source: "providers.docker.constraints", Text: err.Error()})
	}
	return d
}

// Config returns the same as Containers. A container that is still the same pointer must
// not have changed: its part is not computed again, and its values in the result are
// the same pointers. They must not be changed.
func (d *Docker) Config(list []*Container) (gateway.Config, []Problem) {
	if d.accept == nil {
		return gateway.Config{}, d.problems
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *Container) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	byID := make(map[string]*Container, len(list))
	for _, c := range list {
		byID[c.ID], byID[c.Name] = c, c
	}
	known := make(map[*Container]*part, len(list))
	parts := make([]*part, 0, len(list))
	for _, c := range list {
		p := d.parts[c]
		if p == nil || strings.HasPrefix(c.NetworkMode, joinedMode) {
			// A part is a new value that nothing else has before it is complete.
			if err := recovery.Object("container "+c.Name, func() { p = d.part(c, byID) }); err != nil {
				p = &part{container: c.Name, created: c.Created,
					problems: []Problem{{Source: "container " + c.Name, Text: err.Error()}}}
			}
		}
		known[c] = p
		parts = append(parts, p)
	}
	d.parts = known
	x := newIndex(parts, d.scoped)
	all := x.combine(parts)
	all.config.Renamed = x.renamed(d.last)
	d.last = x
	return all.config, append(slices.Clone(d.problems), all.problems...)
}

// part computes the part of one container.
func (d *Docker) part(c *Container, byID map[string]*Container) *part {
	p := &part{container: c.Name, created: c.Created, owner: ownerOf(c, d.scoped), ready: c.ready()}
	if !d.accept(c.Labels) {
		return p
	}
	r := &reporter{source: p.source(), provider: "docker"}
	if err := checkSize(c.Labels); err != nil {
		r.fail("", "%v", err)
		p.problems = r.problems
		return p
	}
	root := r.labelTree(c.Labels)
	s := r.decodeSettings(root)
	if !d.enabled(r, root, s) {
		p.problems = r.problems
		return p
	}
	if !c.Running && !s.Docker.AllowNonRunning {
		return p
	}
	if c.Service != "" && s.Docker.AllowNonRunning {
		r.warn("", "label traefik.docker.allowNonRunning has no effect on a service of a swarm: set "+
			"providers.swarm.allowEmptyServices")
	}
	b := &builder{reporter: r, docker: d, container: c, byID: byID, root: root, settings: s,
		config: r.decodeLabels(root)}
	d.withoutFiles(r, &b.config)
	b.complete()
	b.limitExpressions()
	if d.opt.Strict && slices.ContainsFunc(r.problems, func(p Problem) bool { return !p.Warning }) {
		r.fail("", "all routers, services and middlewares of the container are left out: it has the mistakes above, "+
			"and the provider is strict")
		b.config = gateway.Config{}
	}
	qualifyConfig(&b.config, "docker")
	if c.Stale != "" {
		r.problems = append(r.problems, kept(r.source, c.Stale, &b.config)...)
	}
	p.config, p.problems = b.config, r.problems
	p.define(root)
	return p
}

// enabled reports whether the labels or the default enable a container. Problems of a
// container that is disabled on purpose are of no interest.
func (d *Docker) enabled(r *reporter, root *tree.Node, s settings) bool {
	label := root.Child("enable")
	switch {
	case s.Enable != nil && *s.Enable:
		return true
	case label == nil && (d.opt.ExposedByDefault == nil || *d.opt.ExposedByDefault):
		return true
	case label == nil && (root.Child("http") != nil || root.Child("tcp") != nil || root.Child("udp") != nil):
		r.warn("", "the labels are not in effect: containers are not exposed by default; "+
			"add the label traefik.enable=true")
	case s.Enable != nil && label != nil && strings.EqualFold(label.Value(), "false"):
		r.problems = nil
	}
	return false
}
