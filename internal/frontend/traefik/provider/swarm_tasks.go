package provider

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/recovery"
)

// hostNetwork is the name of the network of tasks that use their node's network.
const hostNetwork = "host"

// read reads the tasks of all services, and reports whether the configuration has changed. An error means
// that there is nothing to go on with: the engine has never answered, or answers nothing.
func (s *Swarm) read(ctx context.Context) (bool, error) {
	before := s.refused()
	errServices := s.services.ask(ctx, "services", s.engine, readServices)
	errTasks := s.allTasks.ask(ctx, "tasks", s.engine, readTasks)
	if err := cmp.Or(errServices, errTasks); err != nil && (!s.services.ok || !s.allTasks.ok ||
		errServices != nil && errTasks != nil) {
		return false, err
	}
	s.tasks = map[string]task{}
	needNodes := false
	for _, t := range s.allTasks.value {
		if t.runs() {
			s.tasks[t.Status.ContainerStatus.ContainerID] = t
			needNodes = needNodes || t.usesHost()
		}
	}
	if needNodes {
		s.nodes.askLess(ctx, "nodes", s.engine, readNodes)
	} else {
		s.nodes.err = nil
	}
	s.own.askLess(ctx, "the gateway's own container", s.engine, s.ownNetworks)
	maps.DeleteFunc(s.stopping, func(id string, _ bool) bool { _, ok := s.tasks[id]; return !ok })
	differs := s.keep(containersOf(s.services.value, s.tasks, s.nodes.value, s.options.AllowEmptyServices))
	if !slices.Equal(s.own.value, s.options.GatewayNetworks) {
		s.options.GatewayNetworks = s.own.value
		s.labels, differs = traefik.NewDocker(s.options), true
	}
	return differs || !slices.Equal(before, s.refused()), nil
}

// refused returns the problems of the lists that the engine refuses.
func (s *Swarm) refused() (all []traefik.Problem) {
	for _, text := range []string{s.services.problem(), s.allTasks.problem(), s.nodes.problem(), s.own.problem()} {
		if text != "" {
			all = append(all, traefik.Problem{Source: "provider swarm", Text: text, Warning: true})
		}
	}
	return all
}

// keep replaces the containers, and reports whether they differ. Those that are the same keep their
// pointers.
func (s *Swarm) keep(now map[string]*traefik.Container) bool {
	differs := len(now) != len(s.containers)
	for id, c := range now {
		c.Stopping = c.Stopping || s.stopping[id]
		if before := s.containers[id]; before != nil && reflect.DeepEqual(before, c) {
			now[id] = before
		} else {
			differs = true
		}
	}
	s.containers = now
	return differs
}

// ownNetworks returns the networks of the container that the gateway runs in, nil if it runs in none
// that the engine knows. If the engine refuses requests for containers, the networks are those of a task
// with an address of the gateway.
func (s *Swarm) ownNetworks(ctx context.Context, e *dockerapi.Engine) (_ []string, err error) {
	own := s.ownTasks()
	for _, id := range append(slices.Clone(s.self.ids), own...) {
		c, failed := e.Inspect(ctx, id)
		switch {
		case failed == nil && strings.HasPrefix(c.ID, id): // the engine also finds containers by their names
			return networks(&c), nil
		case failed != nil && !errors.Is(failed, os.ErrNotExist):
			err = failed
		}
	}
	if err != nil && len(own) > 0 {
		t := s.tasks[own[0]]
		return t.networks(), nil
	}
	return nil, err
}

// networks returns the names of the task's networks.
func (t *task) networks() (names []string) {
	for _, at := range t.NetworksAttachments {
		names = append(names, at.Network.Spec.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ownTasks returns the IDs of the containers of tasks that have an address of the gateway. A swarm
// gives each address of its networks to one task only.
func (s *Swarm) ownTasks() (containers []string) {
	for id, t := range s.tasks {
		for _, at := range t.NetworksAttachments {
			if slices.ContainsFunc(at.Addresses, func(text string) bool {
				address, _, _ := strings.Cut(text, "/")
				return s.self.has(address, "")
			}) {
				containers = append(containers, id)
			}
		}
	}
	return containers
}

// containersOf returns the tasks with the labels of their services. With allowEmpty, a service
// without a running task has one that is not ready.
func containersOf(services []service, tasks map[string]task, nodes map[string]netip.Addr,
	allowEmpty bool) map[string]*traefik.Container {
	names := map[string]string{}
	for _, t := range tasks {
		for _, at := range t.NetworksAttachments {
			names[at.Network.ID] = at.Network.Spec.Name
		}
	}
	byID := map[string]*service{}
	for i := range services {
		byID[services[i].ID] = &services[i]
	}
	all := map[string]*traefik.Container{}
	if allowEmpty {
		for id, of := range byID {
			all[id] = &traefik.Container{ID: id, Name: of.Spec.Name, Service: of.Spec.Name, Created: of.CreatedAt,
				Labels: of.Spec.Labels, Running: true, Health: "starting"}
		}
	}
	for id, t := range tasks {
		if of := byID[t.ServiceID]; of != nil {
			delete(all, of.ID)
			// A task whose container is not complete is not in use.
			_ = recovery.Object("task "+id, func() {
				c := t.container(of, nodes)
				c.VirtualIPs = of.virtualIPs(names)
				all[id] = c
			})
		}
	}
	return all
}

// container returns what the service's labels are completed with.
func (t *task) container(of *service, nodes map[string]netip.Addr) *traefik.Container {
	which := t.ID
	if t.Slot != 0 {
		which = strconv.Itoa(t.Slot)
	}
	c := &traefik.Container{ID: t.ID, Name: of.Spec.Name + "." + which, Service: of.Spec.Name,
		Created: of.CreatedAt, Labels: of.Spec.Labels, Running: true, Stopping: t.DesiredState != running,
		Networks: map[string][]netip.Addr{}}
	for _, at := range t.NetworksAttachments {
		add(c.Networks, at.Network.Spec.Name, at.Addresses...)
	}
	if node := nodes[t.NodeID]; t.usesHost() && node.IsValid() {
		c.NetworkMode, c.NodeIP = hostNetwork, node
	}
	return c
}

// usesHost reports whether the task uses the network of its node.
func (t *task) usesHost() bool {
	for _, at := range t.NetworksAttachments {
		if at.Network.Spec.Name == hostNetwork {
			return true
		}
	}
	return false
}

// virtualIPs returns the addresses of the service by the name of the network. Names are those of the
// networks by their ID.
func (s *service) virtualIPs(names map[string]string) map[string][]netip.Addr {
	all := map[string][]netip.Addr{}
	for _, v := range s.Endpoint.VirtualIPs {
		if name := cmp.Or(names[v.NetworkID], v.NetworkID); v.Addr != "" {
			add(all, name, v.Addr)
		}
	}
	return all
}

// add adds addresses, which have the form ADDRESS/LENGTH, to those of a network.
func add(to map[string][]netip.Addr, network string, addresses ...string) {
	for _, text := range addresses {
		if p, err := netip.ParsePrefix(text); err == nil {
			to[network] = append(to[network], p.Addr())
		}
	}
}
