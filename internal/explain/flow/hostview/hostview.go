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
	// services are the host's virtual services, if servicesRead is true.
	services     []flow.Service
	servicesRead bool
	routes       map[routeAt]routeAnswer
	settings     map[[2]string]string
	// descriptors are those of processes by PID, and filters the programs of cgroups by their ids.
	descriptors map[int]sockdiag.Descriptors
	filters     map[uint64]socketFilters
}

// socketFilters is what inspect.SocketFilters returned.
type socketFilters struct {
	programs []string
	err      error
}

// routeAt is a question for a route of a namespace, and routeAnswer what the kernel answered.
type (
	routeAt struct {
		netns string
		rtnl.RouteQuery
	}
	routeAnswer struct {
		rtnl.RouteFound
		err error
	}
)

// space is a namespace and the state that was read from it. It is kept open, so
// that its path cannot get another namespace in the meantime.
type space struct {
	ns   *netns.Namespace // nil for the host
	id   uint64
	name string
	// host is the handle of the namespace; nil until the first question.
	host      *kernel.Host
	links     []rtnl.NetLink
	ids       map[int]string
	rules     *ruleset
	frames    *frames
	listeners []sockdiag.Listener
	listened  bool
	ebpfState *datapath.State
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
		routes: map[routeAt]routeAnswer{}, settings: map[[2]string]string{},
		descriptors: map[int]sockdiag.Descriptors{}, filters: map[uint64]socketFilters{}}
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
	s, err := w.at(netns)
	if err != nil {
		return nil, err
	}
	if s.links == nil {
		if s.links, err = s.host.Net().NetLinks(); err != nil {
			return nil, fmt.Errorf("inspect %s: %w", s.name, err)
		}
	}
	return s.links, nil
}

// Route implements flow.Routes. It asks each question only once: `fairlead ports` follows
// thousands of flows.
func (w *World) Route(netns string, q rtnl.RouteQuery) (rtnl.RouteFound, error) {
	at := routeAt{netns, q}
	a, known := w.routes[at]
	if !known {
		h, err := w.Host(netns)
		if err != nil {
			return rtnl.RouteFound{}, err
		}
		a.RouteFound, a.err = h.Net().RouteTo(q)
		w.routes[at] = a
	}
	return a.RouteFound, a.err
}

// Rules implements flow.Filters.
func (w *World) Rules(netns string) (rules.Ruleset, []string, error) {
	s, err := w.at(netns)
	if err != nil {
		return nil, nil, err
	}
	if s.rules == nil {
		rs, unread, err := s.host.NFT().Ruleset()
		if err != nil {
			return nil, nil, fmt.Errorf("inspect %s: %w", s.name, err)
		}
		s.rules = &ruleset{rs, unread}
	}
	return s.rules.rules, s.rules.unread, nil
}

// frames is the state of a namespace that decides about frames and routes, besides
// its links.
type frames struct {
	neighbours, forwarding []rtnl.NeighbourEntry
	foreign                []inspect.Foreign
	selectors              rtnl.RouteSelectors
	policies               []plan.IPsecPolicy
}

// frames returns the frames of a namespace, and reads them only once.
func (w *World) frames(netns string) (f frames, err error) {
	s, err := w.at(netns)
	if err != nil {
		return f, err
	}
	if s.frames != nil {
		return *s.frames, nil
	}
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
	if f.neighbours, f.forwarding, err = s.host.Net().NeighbourEntries(); err == nil {
		f.foreign, err = s.host.Inspect().Foreign(own)
	}
	if err == nil {
		f.selectors, err = s.host.Net().RouteSelectors()
	}
	if err == nil {
		f.policies, err = s.host.Net().IPsecPolicies()
	}
	if err != nil {
		return frames{}, fmt.Errorf("inspect %s: %w", s.name, err)
	}
	s.frames = &f
	return f, nil
}

// Selectors implements flow.Routes.
func (w *World) Selectors(netns string) (rtnl.RouteSelectors, error) {
	f, err := w.frames(netns)
	return f.selectors, err
}

// Policies implements flow.Routes.
func (w *World) Policies(netns string) ([]plan.IPsecPolicy, error) {
	f, err := w.frames(netns)
	return f.policies, err
}

// Neighbours implements flow.Links.
func (w *World) Neighbours(netns string) (neighbours, forwarding []rtnl.NeighbourEntry, err error) {
	f, err := w.frames(netns)
	return f.neighbours, f.forwarding, err
}

// Foreign implements flow.Filters.
func (w *World) Foreign(netns string) ([]inspect.Foreign, error) {
	f, err := w.frames(netns)
	return f.foreign, err
}

// Listeners implements flow.Ports.
func (w *World) Listeners(netns string) ([]sockdiag.Listener, error) {
	s, err := w.at(netns)
	if err != nil {
		return nil, err
	}
	if !s.listened {
		if s.listeners, err = s.host.Sockets().Listeners(); err != nil {
			return nil, fmt.Errorf("inspect %s: %w", s.name, err)
		}
		for i, l := range s.listeners {
			s.listeners[i] = facts.Of(l).Listener
		}
		s.listened = true
	}
	return s.listeners, nil
}

// Setting implements flow.Settings. It reads each setting only once.
func (w *World) Setting(netns, name string) string {
	at := [2]string{netns, name}
	value, known := w.settings[at]
	if !known {
		if h, err := w.Host(netns); err == nil {
			value, _ = h.Net().ReadSysctl(plan.Sysctl{Name: name}) // "" if the kernel lacks it
		}
		w.settings[at] = value
	}
	return value
}

// EBPFState implements flow.Programs.
func (w *World) EBPFState() (datapath.State, error) {
	s := w.spaces[""]
	if s.ebpfState == nil {
		found, err := s.host.EBPF().State()
		if err != nil {
			return found, fmt.Errorf("read the state of the eBPF data path: %w", err)
		}
		s.ebpfState = &found
	}
	return *s.ebpfState, nil
}

// Services implements flow.Services.
func (w *World) Services() ([]flow.Service, error) {
	if w.servicesRead {
		return w.services, nil
	}
	installed, err := w.spaces[""].host.Inspect().InstalledServices()
	if err != nil {
		return nil, err
	}
	w.services, w.servicesRead = flow.Merge(installed, w.opt.Services), true
	return w.services, nil
}

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
		if path, ok = w.ids(from)[l.ParentNetns]; !ok {
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

// ids returns the paths of other namespaces by the ids (netnsid) that this
// namespace has for them.
func (w *World) ids(netns string) map[int]string {
	s, err := w.at(netns)
	if err != nil {
		return nil
	}
	if s.ids != nil {
		return s.ids
	}
	s.ids = map[int]string{}
	for _, other := range w.paths {
		path := w.spaces[""].host.Net().Path()
		if other != "" {
			path = w.spaces[other].ns.Path()
		}
		if id, ok := s.host.Net().NamespaceID(path); ok && other != netns {
			s.ids[id] = other
		}
	}
	return s.ids
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
