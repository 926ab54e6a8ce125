package traefik

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// world is a set of containers that define the same names, and a simple model of what their labels mean.
// Each order of its events is random.
type world struct {
	*rand.Rand
	scoped bool
	clock  int
	all    []*modelled
}

// modelled is a container of the model. A middleware is a prefix, or a chain of other middlewares
// ("chain:a,b"); a router is its rule, its middlewares and its service; a service is a strategy. "!" is a
// faulty definition.
type modelled struct {
	name, project, service string
	address                string
	created                int
	running, stopping      bool
	health                 string
	middlewares, services  map[string]string
	routers                map[string]modelRouter
}

type modelRouter struct {
	rule, service string
	middlewares   []string
}

func newOwnerWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 27))}
	w.scoped = w.IntN(4) == 0
	for i, c := range []modelled{{name: "a-web-1", project: "a"}, {name: "a-web-2", project: "a"},
		{name: "b-web-1", project: "b"}, {name: "b-web-2", project: "b"}, {name: "plain1"}, {name: "plain2"},
		{name: "plain3"}, {name: "s.1", service: "s"}, {name: "s.2", service: "s"}} {
		c.address = fmt.Sprintf("10.0.0.%d", i+1)
		w.all = append(w.all, &c)
		if w.IntN(3) > 0 {
			w.deploy(&c)
		}
	}
	return w
}

// event changes one container.
func (w *world) event() {
	c := w.all[w.IntN(len(w.all))]
	switch w.IntN(5) {
	case 0:
		c.running = false
	case 1:
		c.stopping = c.running
	case 2:
		c.health = []string{"", "starting", "healthy", "unhealthy"}[w.IntN(4)]
	case 3:
		w.deploy(c)
	case 4: // with the labels of another container: a replica, or a copy of foreign labels
		from := w.all[w.IntN(len(w.all))]
		w.deploy(c)
		if from.routers == nil {
			return // it was never deployed
		}
		c.middlewares, c.services, c.routers = from.middlewares, from.services, from.routers
	}
}

// deploy starts a new container in place of one.
func (w *world) deploy(c *modelled) {
	w.clock++
	c.created, c.running, c.stopping, c.health = w.clock, true, false, []string{"", "healthy", "starting"}[w.IntN(3)]
	c.middlewares, c.services, c.routers = map[string]string{}, map[string]string{}, map[string]modelRouter{}
	for _, name := range []string{"auth", "head"} {
		if w.IntN(2) == 0 {
			c.middlewares[name] = w.pick("/1", "/2", "!")
		}
	}
	if w.IntN(3) == 0 {
		c.middlewares["all"] = w.pick("chain:auth,head", "chain:auth", "chain:head,all")
	}
	c.services["shop"] = w.pick("", "wrr", "p2c")
	if w.IntN(3) == 0 {
		c.services["app"] = w.pick("", "p2c", "!")
	}
	for _, name := range []string{"shop", "app"} {
		if name == "app" && w.IntN(2) == 0 {
			continue
		}
		r := modelRouter{rule: w.pick("Host(`one.test`)", "Host(`two.test`)", "Host(`three.test`)", "!"),
			service: w.pick("shop", "shop", "app")}
		for _, m := range []string{"auth", "head", "all"} {
			if w.IntN(3) == 0 {
				r.middlewares = append(r.middlewares, m)
			}
		}
		c.routers[name] = r
	}
}

func (w *world) pick(from ...string) string { return from[w.IntN(len(from))] }

// containers returns the containers that run, in random order, as the provider takes them.
func (w *world) containers() (list []*Container) {
	for _, c := range w.all {
		if c.running {
			list = append(list, c.container())
		}
	}
	w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// otherAges returns the containers so that other owners have the older ones. Within an owner, the order of
// ages stays.
func (w *world) otherAges() []*Container {
	shift := map[string]time.Duration{}
	list := w.containers()
	for _, c := range list {
		of := w.owner(&modelled{name: c.Name, project: c.Labels[composeProject], service: c.Service})
		if _, ok := shift[of]; !ok {
			shift[of] = time.Duration(w.IntN(9)) * time.Hour
		}
		c.Created = c.Created.Add(shift[of])
	}
	return list
}

func (c *modelled) container() *Container {
	made := &Container{ID: c.name, Name: c.name, Service: c.service, Created: time.Unix(int64(c.created), 0),
		Running: true, Stopping: c.stopping, Health: c.health, ExposedPorts: []Port{{80, "tcp"}},
		Labels: map[string]string{}, Networks: map[string][]netip.Addr{"net": {netip.MustParseAddr(c.address)}}}
	if c.project != "" {
		made.Labels[composeProject], made.Labels[composeService] = c.project, "web"
	}
	label := func(value, format string, args ...any) {
		made.Labels["traefik.http."+fmt.Sprintf(format, args...)] = value
	}
	for name, value := range c.middlewares {
		inner, chain := strings.CutPrefix(value, "chain:")
		switch {
		case value == "!":
			label("x", "middlewares.%s.addprefix.prefx", name)
		case chain:
			label(inner, "middlewares.%s.chain.middlewares", name)
		default:
			label(value, "middlewares.%s.addprefix.prefix", name)
		}
	}
	for name, value := range c.services {
		label("80", "services.%s.loadbalancer.server.port", name)
		switch value {
		case "":
		case "!":
			label("x", "services.%s.loadbalancer.stratgy", name)
		default:
			label(value, "services.%s.loadbalancer.strategy", name)
		}
	}
	for name, r := range c.routers {
		label(r.service, "routers.%s.service", name)
		label(strings.Join(r.middlewares, ","), "routers.%s.middlewares", name)
		if len(r.middlewares) == 0 {
			delete(made.Labels, "traefik.http.routers."+name+".middlewares")
		}
		if label(r.rule, "routers.%s.rule", name); r.rule == "!" {
			label("high", "routers.%s.priority", name)
		}
	}
	return made
}

func (c *modelled) ready() bool {
	return c.running && !c.stopping && (c.health == "" || c.health == "healthy")
}

// owner is the model's: containers without a project have one together, unless references are scoped.
func (w *world) owner(c *modelled) string {
	switch {
	case c.service != "":
		return "service " + c.service
	case c.project != "":
		return "project " + c.project
	case w.scoped:
		return "container " + c.name
	}
	return ""
}

// expected returns what all routers do.
func (w *world) expected() []string {
	var all []string
	for _, c := range w.all {
		for name, r := range c.routers {
			if c.running && r.rule != "!" && !w.givesWay(c, name) {
				all = append(all, w.flow(c, r))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// givesWay reports whether another container of the owner is ready, and this one is not.
func (w *world) givesWay(c *modelled, name string) bool {
	return !c.ready() && slices.ContainsFunc(w.all, func(other *modelled) bool {
		if !other.ready() || w.owner(other) != w.owner(c) {
			return false
		}
		if r, ok := other.routers[name]; ok && r.rule != "!" && w.owner(c) != "" {
			return true
		}
		return slices.ContainsFunc(slices.Collect(maps.Values(other.routers)), func(r modelRouter) bool {
			return r.rule == c.routers[name].rule
		})
	})
}

// flow describes what a router of a container does.
func (w *world) flow(c *modelled, r modelRouter) string {
	text := r.rule
	for _, m := range r.middlewares {
		text += " " + w.middleware(c, m, nil)
	}
	if text += " " + w.balancer(c, r.service); strings.Contains(text, "closed") {
		return r.rule + " closed"
	}
	return text
}

// middleware describes what a middleware means to a container.
func (w *world) middleware(c *modelled, name string, path []string) string {
	if slices.Contains(path, name) {
		return "closed" // it contains itself
	}
	at := w.resolve(c, name, func(c *modelled) (string, bool) { v, ok := c.middlewares[name]; return v, ok },
		func(at *modelled) string { return w.middleware(at, name, path) }, true)
	if at == nil {
		return "closed"
	}
	inner, chain := strings.CutPrefix(at.middlewares[name], "chain:")
	if !chain {
		return at.middlewares[name]
	}
	var parts []string
	for _, part := range strings.Split(inner, ",") {
		parts = append(parts, w.middleware(at, part, append(slices.Clone(path), name)))
	}
	return "(" + strings.Join(parts, " ") + ")"
}

// balancer describes what a service means to a container.
func (w *world) balancer(c *modelled, name string) string {
	at := w.resolve(c, name, func(c *modelled) (string, bool) { v, ok := c.services[name]; return v, ok },
		func(at *modelled) string { return w.owner(at) + at.services[name] }, false)
	if at == nil {
		return "closed"
	}
	var servers []string
	for _, other := range w.all {
		if value, ok := other.services[name]; ok && value != "!" && other.ready() && w.owner(other) == w.owner(at) {
			servers = append(servers, other.address)
		}
	}
	slices.Sort(servers)
	return fmt.Sprintf("%s=%s%v", name, at.services[name], servers)
}

// resolve returns the container whose definition a name means to a container, nil if there is none, or if
// it cannot be decided. meaning describes the definition of a container.
func (w *world) resolve(c *modelled, name string, defines func(*modelled) (string, bool),
	meaning func(*modelled) string, across bool) *modelled {
	if value, ok := defines(c); ok {
		if value == "!" {
			return nil
		}
		return c
	}
	var mates, others []*modelled
	mentioned := false
	for _, other := range w.all {
		value, ok := defines(other)
		switch {
		case !ok || !other.running:
		case w.owner(other) != w.owner(c):
			if value != "!" {
				others = append(others, other)
			}
		default:
			if mentioned = true; value != "!" {
				mates = append(mates, other)
			}
		}
	}
	switch {
	case mentioned:
		return w.preferred(mates, meaning)
	case w.scoped || len(others) == 0:
		return nil
	}
	if strangers := slices.ContainsFunc(others, func(o *modelled) bool {
		return w.owner(o) != w.owner(others[0])
	}); strangers {
		return agreeing(others, meaning)
	}
	return w.preferred(others, meaning)
}

func (w *world) preferred(all []*modelled, meaning func(*modelled) string) *modelled {
	if len(all) == 0 {
		return nil
	}
	if slices.ContainsFunc(all, (*modelled).ready) {
		all = slices.DeleteFunc(all, func(c *modelled) bool { return !c.ready() })
	}
	if w.owner(all[0]) == "" {
		return agreeing(all, meaning)
	}
	return slices.MaxFunc(all, func(a, b *modelled) int {
		return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.name, b.name))
	})
}

// agreeing returns the first container if the definitions of all mean the same, nil if they do not.
func agreeing(all []*modelled, meaning func(*modelled) string) *modelled {
	for _, c := range all[1:] {
		if meaning(c) != meaning(all[0]) {
			return nil
		}
	}
	return all[0]
}
