// Package hostview answers the questions of flow.World about this host: it reads
// from the kernel the state of the host and of every namespace that a process or a
// name keeps alive. It reads most state once, and changes nothing.
package hostview

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/flow"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"

	"golang.org/x/sys/unix"
)

// Options are facts that the kernel does not know.
type Options struct {
	// Sandboxes are the paths of namespaces by the names of their attachments.
	Sandboxes map[string]string
	// Containers are names of containers by their short ids.
	Containers map[string]string
	Published  []flow.Published
	// Services are the daemon's virtual services.
	Services []flow.Known
	// Finder resolves other names.
	Finder sandbox.Finder
}

// World answers the questions of flow.World. It is not safe for concurrent use.
type World struct {
	opt Options
	// spaces are the namespaces by path; the host's path is empty.
	spaces map[string]*space
	paths  []string // in the order of searches
	// What was read of namespaces, by their paths.
	links     answers[string, []rtnl.NetLink]
	ids       answers[string, map[int]string]
	rules     answers[string, ruleset]
	frames    answers[string, frames]
	listeners answers[string, []sockdiag.Listener]
	routes    answers[routeAt, rtnl.RouteFound]
	settings  answers[[2]string, string]
	// descriptors are those of processes by PID, and filters the programs of cgroups by their ids.
	descriptors answers[int, sockdiag.Descriptors]
	filters     answers[uint64, []string]
	ebpfState   func() (datapath.State, error)
	services    func() ([]flow.Service, error)
}

// routeAt is a question for a route of a namespace.
type routeAt struct {
	netns string
	rtnl.RouteQuery
}

// answers are what was read and the errors, by keys.
type answers[K comparable, V any] map[K]func() (V, error)

// of returns the answer for a key, and reads it only once.
func (a answers[K, V]) of(key K, read func() (V, error)) (V, error) {
	if a[key] == nil {
		a[key] = sync.OnceValues(read)
	}
	return a[key]()
}

// space is a namespace. It is kept open, so that its path cannot get another
// namespace in the meantime.
type space struct {
	ns   *netns.Namespace // nil for the host
	id   uint64
	name string
	// host is the handle of the namespace; nil until the first question.
	host *kernel.Host
}

type ruleset struct {
	rules  rules.Ruleset
	unread []string
}

// New returns the World of a host. Close closes it, but not the host.
func New(host *kernel.Host, opt Options) (*World, error) {
	id, err := inode(host.Netns())
	if err != nil {
		return nil, err
	}
	w := &World{opt: opt, spaces: map[string]*space{"": {host: host, id: id, name: "host"}}, paths: []string{""},
		links: answers[string, []rtnl.NetLink]{}, ids: answers[string, map[int]string]{},
		rules: answers[string, ruleset]{}, frames: answers[string, frames]{},
		listeners: answers[string, []sockdiag.Listener]{}, routes: answers[routeAt, rtnl.RouteFound]{},
		settings: answers[[2]string, string]{}, descriptors: answers[int, sockdiag.Descriptors]{},
		filters: answers[uint64, []string]{}, ebpfState: sync.OnceValues(host.EBPF().State)}
	w.services = sync.OnceValues(func() ([]flow.Service, error) {
		installed, err := host.Inspect().InstalledServices()
		if err != nil {
			return nil, err
		}
		return flow.Merge(installed, opt.Services), nil
	})
	seen := map[uint64]bool{id: true}
	for _, name := range slices.Sorted(maps.Keys(opt.Sandboxes)) {
		w.add(seen, opt.Sandboxes[name], name)
	}
	for _, path := range host.Net().Namespaces() {
		w.add(seen, path, opt.nameOf(path))
	}
	return w, nil
}

// add opens a namespace that was not seen before. It ignores a namespace that no
// longer exists.
func (w *World) add(seen map[uint64]bool, path, name string) {
	ns, err := netns.Open(path)
	if err != nil {
		return
	}
	id, err := inode(ns.File())
	if err != nil || seen[id] {
		ns.Close()
		return
	}
	seen[id] = true
	w.spaces[path], w.paths = &space{ns: ns, id: id, name: name}, append(w.paths, path)
}

// inode returns the inode number of a namespace, which is unique while the
// namespace exists.
func inode(ns *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
		return 0, fmt.Errorf("read the inode of a network namespace: %w", err)
	}
	return st.Ino, nil
}

// nameOf returns the name of a namespace without an attachment: its name in
// `ip netns`, or the container or process that keeps it alive.
func (o Options) nameOf(path string) string {
	if name, ok := strings.CutPrefix(path, "/run/netns/"); ok {
		return name
	}
	pid, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(path, "/proc/"), "/ns/net"))
	p := sockdiag.ProcessOf(pid)
	if name, ok := o.Containers[p.Container]; ok && p.Container != "" {
		return name
	}
	return fmt.Sprintf("pid:%d (%s)", p.PID, p.Command)
}

// Close closes the namespaces.
func (w *World) Close() error {
	var errs []error
	for _, s := range w.spaces {
		if s.ns == nil {
			continue
		}
		if s.host != nil {
			errs = append(errs, s.host.Close())
		}
		errs = append(errs, s.ns.Close())
	}
	return errors.Join(errs...)
}

// Host returns the handle of a namespace. The World owns it: callers must not
// close it.
func (w *World) Host(netns string) (*kernel.Host, error) {
	s, err := w.at(netns)
	if err != nil {
		return nil, err
	}
	return s.host, nil
}

// at returns a namespace with an open handle.
func (w *World) at(netns string) (*space, error) {
	s := w.spaces[netns]
	if s == nil {
		return nil, fmt.Errorf("inspect %s: the namespace is unknown", netns)
	}
	if s.host == nil {
		var err error
		if s.host, err = kernel.Open(s.ns.Path(), kernel.Options{}); err != nil {
			return nil, fmt.Errorf("inspect %s: %w", s.name, err)
		}
	}
	return s, nil
}

// about returns what is read from a namespace, and reads it only once.
func about[V any](w *World, known answers[string, V], netns string, read func(*kernel.Host) (V, error)) (V, error) {
	return known.of(netns, func() (v V, err error) {
		s, err := w.at(netns)
		if err != nil {
			return v, err
		}
		if v, err = read(s.host); err != nil {
			err = fmt.Errorf("inspect %s: %w", s.name, err)
		}
		return v, err
	})
}

// Facts returns the world with the interfaces of package flow.
func (w *World) Facts() flow.World {
	return flow.World{Namespaces: w, Links: w, Routes: w, Settings: w, Filters: w, Ports: w, Services: w, Programs: w}
}

// Name implements flow.Namespaces.
func (w *World) Name(netns string) string {
	if s, ok := w.spaces[netns]; ok {
		return s.name
	}
	return netns
}

// Links implements flow.Links.
func (w *World) Links(netns string) ([]rtnl.NetLink, error) {
	return about(w, w.links, netns, func(h *kernel.Host) ([]rtnl.NetLink, error) { return h.Net().NetLinks() })
}

// Route implements flow.Routes. It asks each question only once: `fairlead ports` follows
// thousands of flows.
func (w *World) Route(netns string, q rtnl.RouteQuery) (rtnl.RouteFound, error) {
	return w.routes.of(routeAt{netns, q}, func() (found rtnl.RouteFound, err error) {
		h, err := w.Host(netns)
		if err != nil {
			return found, err
		}
		return h.Net().RouteTo(q)
	})
}

// Rules implements flow.Filters.
func (w *World) Rules(netns string) (rules.Ruleset, []string, error) {
	r, err := about(w, w.rules, netns, func(h *kernel.Host) (r ruleset, err error) {
		r.rules, r.unread, err = h.NFT().Ruleset()
		return r, err
	})
	return r.rules, r.unread, err
}

// frames is the state of a namespace that decides about frames and routes, besides
// its links.
type frames struct {
	neighbours, forwarding []rtnl.NeighbourEntry
	foreign                []inspect.Foreign
	selectors              rtnl.RouteSelectors
	policies               []plan.IPsecPolicy
}

// framesOf returns the frames of a namespace.
func (w *World) framesOf(netns string) (frames, error) {
	return about(w, w.frames, netns, func(h *kernel.Host) (f frames, err error) {
		var own []uint32
		if netns == "" {
			state, err := w.EBPFState()
			if err != nil {
				return f, err
			}
			for _, p := range state.Programs {
				own = append(own, p.ID)
			}
		}
		if f.neighbours, f.forwarding, err = h.Net().NeighbourEntries(); err == nil {
			f.foreign, err = h.Inspect().Foreign(own)
		}
		if err == nil {
			f.selectors, err = h.Net().RouteSelectors()
		}
		if err == nil {
			f.policies, err = h.Net().IPsecPolicies()
		}
		return f, err
	})
}

// Selectors implements flow.Routes.
func (w *World) Selectors(netns string) (rtnl.RouteSelectors, error) {
	f, err := w.framesOf(netns)
	return f.selectors, err
}

// Policies implements flow.Routes.
func (w *World) Policies(netns string) ([]plan.IPsecPolicy, error) {
	f, err := w.framesOf(netns)
	return f.policies, err
}

// Neighbours implements flow.Links.
func (w *World) Neighbours(netns string) (neighbours, forwarding []rtnl.NeighbourEntry, err error) {
	f, err := w.framesOf(netns)
	return f.neighbours, f.forwarding, err
}

// Foreign implements flow.Filters.
func (w *World) Foreign(netns string) ([]inspect.Foreign, error) {
	f, err := w.framesOf(netns)
	return f.foreign, err
}

// Listeners implements flow.Ports.
func (w *World) Listeners(netns string) ([]sockdiag.Listener, error) {
	return about(w, w.listeners, netns, func(h *kernel.Host) ([]sockdiag.Listener, error) {
		all, err := h.Sockets().Listeners()
		for i, l := range all {
			all[i] = facts.Of(l).Listener
		}
		return all, err
	})
}

// Setting implements flow.Settings. It reads each setting only once.
func (w *World) Setting(netns, name string) string {
	value, _ := w.settings.of([2]string{netns, name}, func() (string, error) {
		h, err := w.Host(netns)
		if err != nil {
			return "", err
		}
		return h.Net().ReadSysctl(plan.Sysctl{Name: name})
	})
	return value // "" if the kernel lacks it
}

// EBPFState implements flow.Programs.
func (w *World) EBPFState() (datapath.State, error) {
	found, err := w.ebpfState()
	if err != nil {
		return found, fmt.Errorf("read the state of the eBPF data path: %w", err)
	}
	return found, nil
}

// Services implements flow.Services.
func (w *World) Services() ([]flow.Service, error) { return w.services() }

// Failed implements flow.Services.
func (w *World) Failed() []flow.Known {
	return slices.DeleteFunc(slices.Clone(w.opt.Services), func(k flow.Known) bool { return k.Problem == "" })
}

// Peer implements flow.Links.
func (w *World) Peer(from string, l rtnl.NetLink) (flow.End, bool) {
	if l.Parent == 0 {
		return flow.End{}, false
	}
	path := from
	if l.ParentNetns != netns.NoID {
		var ok bool
		if path, ok = w.idsOf(from)[l.ParentNetns]; !ok {
			return flow.End{}, false
		}
	}
	links, err := w.Links(path)
	i := slices.IndexFunc(links, func(o rtnl.NetLink) bool { return o.Index == l.Parent })
	if err != nil || i < 0 {
		return flow.End{}, false
	}
	return flow.End{Netns: path, NetLink: links[i]}, true
}

// idsOf returns the paths of other namespaces by the ids (netnsid) that this
// namespace has for them.
func (w *World) idsOf(netns string) map[int]string {
	ids, _ := about(w, w.ids, netns, func(h *kernel.Host) (map[int]string, error) {
		ids := map[int]string{}
		for _, other := range w.paths {
			path := w.spaces[""].host.Net().Path()
			if other != "" {
				path = w.spaces[other].ns.Path()
			}
			if id, ok := h.Net().NamespaceID(path); ok && other != netns {
				ids[id] = other
			}
		}
		return ids, nil
	})
	return ids
}

// SubLinks implements flow.Links.
func (w *World) SubLinks(netns string, parent rtnl.NetLink) []flow.End {
	var all []flow.End
	for _, path := range w.paths {
		links, err := w.Links(path)
		if err != nil {
			continue
		}
		for _, l := range links {
			if l.Kind != "macvlan" && l.Kind != "ipvlan" || l.Parent != parent.Index {
				continue
			}
			if p, ok := w.Peer(path, l); ok && p.Netns == netns && p.Index == parent.Index {
				all = append(all, flow.End{Netns: path, NetLink: l})
			}
		}
	}
	return all
}

// Published implements flow.Ports.
func (w *World) Published() []flow.Published { return w.opt.Published }
