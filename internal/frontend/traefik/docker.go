package traefik

import (
	"cmp"
	"slices"
	"strings"
	"text/template"

	"fairlead/internal/model/gateway"
)

// defaultRule is that of Traefik's Docker provider.
const defaultRule = "Host(`{{ normalize .Name }}`)"

// Containers returns the configuration that the labels of the containers describe, and
// what is wrong with it. All names are NAME@docker. Where the definitions of two
// containers conflict, that of the older one stays.
func Containers(list []Container, opt DockerOptions) (gateway.Config, []Problem) {
	p := &docker{opt: &opt, byID: map[string]*Container{}}
	p.rule, p.ruleErr = parseTemplate("defaultRule", cmp.Or(opt.DefaultRule, defaultRule))
	if p.ruleErr != nil {
		p.problems = append(p.problems, Problem{Source: "providers.docker.defaultRule", Text: p.ruleErr.Error()})
	}
	accept, err := parseConstraints(opt.Constraints)
	if err != nil {
		return gateway.Config{}, append(p.problems, Problem{Source: "providers.docker.constraints", Text: err.Error()})
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Container) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	for i := range list {
		p.byID[list[i].ID], p.byID[list[i].Name] = &list[i], &list[i]
	}
	m := newMerger("docker", true)
	for i := range list {
		if c := &list[i]; accept(c.Labels) {
			m.add(p.container(c), "container "+c.Name)
		}
	}
	qualifyConfig(&m.config, "docker")
	return m.config, append(p.problems, m.problems...)
}

// docker is one run of Containers.
type docker struct {
	opt      *DockerOptions
	rule     *template.Template
	ruleErr  error
	byID     map[string]*Container
	problems []Problem
}

// container returns the part of one container. Its names are not qualified.
func (p *docker) container(c *Container) gateway.Config {
	r := &reporter{source: "container " + c.Name, provider: "docker"}
	defer func() { p.problems = append(p.problems, r.problems...) }()
	root := r.labelTree(c.Labels)
	s := r.decodeSettings(root)
	if !p.enabled(r, root, s) {
		return gateway.Config{}
	}
	if !c.Running && !s.Docker.AllowNonRunning {
		r.problems = nil
		return gateway.Config{}
	}
	b := &builder{reporter: r, docker: p, container: c, root: root, settings: s, config: r.decodeLabels(root)}
	b.complete()
	strict := func(p Problem) bool { return !p.Warning }
	if p.opt.Strict && slices.ContainsFunc(r.problems, strict) {
		r.fail("", "all routers, services and middlewares of the container are left out: it has the mistakes above, "+
			"and the provider is strict")
		return gateway.Config{}
	}
	return b.config
}

// enabled reports whether the labels or the default enable a container. Problems of a
// container that is disabled on purpose are of no interest.
func (p *docker) enabled(r *reporter, root *Node, s settings) bool {
	label := root.Child("enable")
	switch {
	case s.Enable != nil && *s.Enable:
		return true
	case label == nil && (p.opt.ExposedByDefault == nil || *p.opt.ExposedByDefault):
		return true
	case label == nil && (root.Child("http") != nil || root.Child("tcp") != nil || root.Child("udp") != nil):
		r.warn("", "the labels are not in effect: containers are not exposed by default; "+
			"add the label traefik.enable=true")
	case s.Enable != nil && label != nil && strings.EqualFold(label.Value(), "false"):
		r.problems = nil
	}
	return false
}
