package traefik

import (
	"cmp"
	"slices"
	"strings"
	"text/template"

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
	parts    map[*Container]*part
}

// part is what a container adds to the configuration.
type part struct {
	config   gateway.Config
	problems []Problem
}

// NewDocker returns a Docker with these options.
func NewDocker(opt DockerOptions) *Docker {
	d := &Docker{opt: &opt}
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
	parts := make(map[*Container]*part, len(list))
	m := merger{servers: true}
	problems := slices.Clone(d.problems)
	for _, c := range list {
		p := d.parts[c]
		if p == nil || strings.HasPrefix(c.NetworkMode, joinedMode) {
			// A part is a new value that nothing else has before it is complete.
			if err := recovery.Object("container "+c.Name, func() { p = d.part(c, byID) }); err != nil {
				p = &part{problems: []Problem{{Source: "container " + c.Name, Text: err.Error()}}}
			}
		}
		parts[c] = p
		m.add(provided{"container " + c.Name, &p.config})
		problems = append(problems, p.problems...)
	}
	d.parts = parts
	return m.config, append(problems, m.problems...)
}

// part computes the part of one container.
func (d *Docker) part(c *Container, byID map[string]*Container) *part {
	if !d.accept(c.Labels) {
		return &part{}
	}
	r := &reporter{source: "container " + c.Name, provider: "docker"}
	if err := checkSize(c.Labels); err != nil {
		r.fail("", "%v", err)
		return &part{problems: r.problems}
	}
	root := r.labelTree(c.Labels)
	s := r.decodeSettings(root)
	if !d.enabled(r, root, s) {
		return &part{problems: r.problems}
	}
	if !c.Running && !s.Docker.AllowNonRunning {
		return &part{}
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
		return &part{problems: r.problems}
	}
	qualifyConfig(&b.config, "docker")
	if c.Stale != "" {
		r.problems = append(r.problems, kept(r.source, c.Stale, &b.config)...)
	}
	return &part{b.config, r.problems}
}

// enabled reports whether the labels or the default enable a container. Problems of a
// container that is disabled on purpose are of no interest.
func (d *Docker) enabled(r *reporter, root *Node, s settings) bool {
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
