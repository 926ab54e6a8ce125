package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// ebpfSchedulers are the schedulers, at the index that is their number in the eBPF maps.
var ebpfSchedulers = model.AllSchedulers()

// scheduling returns the method that the programs use for a scheduler.
func scheduling(t model.SchedulerTraits) uint8 {
	switch {
	case t.Hashes == model.FullKey:
		return ebpf.ByFlow
	case t.Hashes == model.ClientKey:
		return ebpf.ByClient
	case t.CountsFlows && t.Weighted:
		return ebpf.ByLoad
	case t.CountsFlows:
		return ebpf.ByCount
	}
	return ebpf.ByTurn
}

// ebpfForwards maps the forwarding methods to their numbers in the eBPF maps.
var ebpfForwards = map[model.Forward]uint8{
	model.ForwardNAT: ebpf.ForwardNAT, model.ForwardDirect: ebpf.ForwardDirect, model.ForwardTunnel: ebpf.ForwardTunnel,
}

// LoadServices loads what the first virtual service needs, unless that is loaded: the kernel verifies the programs for
// more than a second. Meanwhile the data path is not locked. Returns an error if the kernel refuses the programs, or does
// not attach one in a temporary namespace. drop releases what no service has used.
func LoadServices(h *Handle) (drop func() error, err error) {
	nothing := func() error { return nil }
	h.mu.Lock()
	p, err := h.Datapath()
	var g *ebpf.Growth
	if err == nil {
		g, err = ebpf.NewGrowth(p)
	}
	h.mu.Unlock()
	if err != nil || g == nil {
		return nothing, err
	}
	err = h.ns.Do(g.Load)
	if err == nil {
		err = errors.Join(h.ns.Do(g.UseInCgroups), useOnLinks(g))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		return nothing, errors.Join(err, g.Close(), h.unloadIdle())
	}
	if h.ebpfState != p || !g.Offer(p) { // it was unloaded meanwhile, or has grown
		return nothing, g.Close()
	}
	return func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ebpfState != p {
			return nil
		}
		return errors.Join(g.Withdraw(p), h.unloadIdle())
	}, nil
}

// Prepare loads the programs with support for services if a step adds one. The
// programs that are attached next then need not be replaced when the service is
// added.
func (h *Handle) Prepare(ops []plan.Op) error {
	if !slices.ContainsFunc(ops, func(op plan.Op) bool { return !op.Del && isService(op.Object) }) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.Datapath()
	if err != nil {
		return err
	}
	if err := h.ns.Do(p.Serve); err != nil {
		return errors.Join(err, h.unloadIdle())
	}
	return nil
}

// applyServices applies the steps to the virtual services and ends the flows that
// use what the steps remove.
func (h *Handle) applyServices(p *ebpf.Datapath, links indices, ops []plan.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if slices.ContainsFunc(ops, func(op plan.Op) bool { return !op.Del }) {
		if err := h.ns.Do(p.Serve); err != nil {
			return err
		}
	}
	var gone ebpf.Gone
	b, hops := p.Balancer(), nextHops{}
	for _, op := range ops {
		s := op.Object.(plan.EBPFService)
		if op.Del {
			if err := b.Del(s.Service, &gone); err != nil {
				return fmt.Errorf("remove %s: %w", s.Key(), err)
			}
			continue
		}
		if !b.Intact(s.Service) {
			b.Restore(s.Service)
		}
		service, err := h.ebpfService(links, hops, s.Balanced)
		if err == nil {
			err = b.Set(service, &gone)
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", s.Key(), err)
		}
	}
	return errors.Join(b.WriteServed(), h.endServiceFlows(p, &gone))
}

// endServiceFlows ends the flows to removed real servers and frontends. TCP
// connections are reset at both ends, and the host's sockets that were connected to
// them are closed.
func (h *Handle) endServiceFlows(p *ebpf.Datapath, gone *ebpf.Gone) error {
	if !gone.Any() {
		return nil
	}
	ended, err := p.Flows().Ended(gone)
	if err == nil {
		err = errors.Join(p.Flows().Forget(ended), h.endLocal(p))
	}
	if err != nil {
		return err
	}
	ended = slices.DeleteFunc(ended, func(f ebpf.Flow) bool { return f.UDP || f.Stale })
	err = h.ns.Do(func() error {
		var errs []error
		for _, f := range ended {
			errs = append(errs, rawtcp.IgnoreUnreachable(resetFlow(f)))
		}
		return errors.Join(errs...)
	})
	var reset []conntrack.Flow
	for _, f := range ended {
		if !f.Closing {
			reset = append(reset, conntrack.Flow{Proto: model.TCP, Client: f.Client, Host: f.Host, Target: f.Endpoint})
		}
	}
	h.tcp.NoteEnded(reset)
	return err
}

// ebpfService converts a service into the form of the eBPF maps.
func (h *Handle) ebpfService(links indices, hops nextHops, b plan.Balanced) (ebpf.Service, error) {
	s := ebpf.Service{Name: b.Service, UDP: b.Proto == model.UDP, Frontends: b.Frontends,
		Forward: ebpfForwards[b.Forward], Persistence: uint32(b.Persistence / time.Second)}
	if b.Tunnel.Type == model.TunnelGUE {
		s.GUE = b.Tunnel.Port
	}
	number := slices.Index(ebpfSchedulers, b.Scheduler)
	if number < 0 {
		return s, fmt.Errorf("unknown scheduler %s", b.Scheduler)
	}
	s.Scheduler, s.Scheduling = uint8(number), scheduling(b.Scheduler.Traits())
	for _, backend := range b.Backends {
		s.Reals = append(s.Reals, h.ebpfReal(links, hops, backend))
	}
	s.Ring = b.Ring
	return s, nil
}

// ebpfReal converts a real server into the form of the eBPF maps. If there is no
// route to it, it has no link.
func (h *Handle) ebpfReal(links indices, hops nextHops, b plan.Backend) ebpf.Real {
	r := ebpf.Real{At: b.At, Weight: b.Weight, Seen: b.Gateway, Ifindex: links[b.Link]}
	if b.Masquerade {
		r.Flags |= ebpf.RealMasquerade
	}
	if b.Draining {
		r.Flags |= ebpf.RealDraining
	}
	if b.Tunnel {
		r.Flags |= ebpf.RealTunnel
	}
	if b.Local {
		r.Flags |= ebpf.RealLocal
	} else if b.Link == "" {
		r.Flags |= ebpf.RealRemote
		hop := hops.to(h, b.At.Addr())
		r.Seen, r.Ifindex = hop.from, hop.ifindex
	}
	return r
}

// nextHop is how the host reaches an address: the source address and the link's
// index. It is empty if there is no route.
type nextHop struct {
	from    netip.Addr
	ifindex uint32
}

// nextHops caches route lookups by destination.
type nextHops map[netip.Addr]nextHop

func (w nextHops) to(h *Handle, addr netip.Addr) nextHop {
	found, known := w[addr]
	if !known {
		found = h.nextHopTo(addr)
		w[addr] = found
	}
	return found
}

func (h *Handle) nextHopTo(addr netip.Addr) (w nextHop) {
	list, err := h.rtnl.RouteGet(addr)
	if err != nil || len(list) == 0 || list[0].Type != unix.RTN_UNICAST {
		return w
	}
	w.from = nlutil.Addr(list[0].Src)
	w.ifindex = uint32(list[0].LinkIndex)
	return w
}

// readEBPFServices returns the services in the eBPF maps: those with the given
// keys, or all if keys is nil. It leaves out services that are damaged and services
// with a real server whose next hop has changed.
func (h *Handle) readEBPFServices(keys map[string]bool) (plan.Plan, error) {
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	hops := nextHops{}
	var names map[uint32]string
	var all plan.Plan
	for _, s := range p.Balancer().Services() {
		o := plan.EBPFService{Balanced: plan.Balanced{Service: s.Name}}
		if keys != nil && !keys[o.Key()] || !p.Balancer().Intact(s.Name) {
			continue
		}
		if names == nil {
			if names, err = h.rtnl.LinkNames(); err != nil {
				return nil, err
			}
		}
		if o.Balanced = balancedOf(s, names, func(to netip.Addr) nextHop { return hops.to(h, to) }); o.Service != "" {
			all = append(all, o)
		}
	}
	return all, nil
}

// balancedOf converts the content of the eBPF maps into a service. It returns an
// empty one if nextHopTo is not nil and the next hop to a real server has changed.
func balancedOf(s ebpf.Service, names map[uint32]string, nextHopTo func(netip.Addr) nextHop) plan.Balanced {
	b := plan.Balanced{Service: s.Name, Proto: model.TCP, Persistence: time.Duration(s.Persistence) * time.Second}
	if s.UDP {
		b.Proto = model.UDP
	}
	for forward, number := range ebpfForwards {
		if number == s.Forward {
			b.Forward = forward
		}
	}
	if s.GUE != 0 {
		b.Tunnel = model.Tunnel{Type: model.TunnelGUE, Port: s.GUE}
	}
	if int(s.Scheduler) < len(ebpfSchedulers) {
		b.Scheduler = ebpfSchedulers[s.Scheduler]
	}
	frontends := make([]model.Frontend, len(s.Frontends))
	for i, at := range s.Frontends {
		frontends[i] = model.Frontend{Proto: b.Proto, At: at}
	}
	b.Frontends = plan.FrontendAddrs(frontends)
	var backends []plan.Backend
	for _, r := range s.Reals {
		backend := plan.Backend{At: r.At, Weight: r.Weight, Draining: r.Flags&ebpf.RealDraining != 0,
			Masquerade: r.Flags&ebpf.RealMasquerade != 0, Tunnel: r.Flags&ebpf.RealTunnel != 0,
			Local: r.Flags&ebpf.RealLocal != 0}
		if r.Flags&(ebpf.RealRemote|ebpf.RealLocal) == 0 {
			backend.Link, backend.Gateway = names[r.Ifindex], r.Seen
		} else if nextHopTo != nil && !backend.Local && nextHopTo(r.At.Addr()) != (nextHop{r.Seen, r.Ifindex}) {
			return plan.Balanced{}
		}
		backends = append(backends, backend)
	}
	b.Backends, b.Ring = backends, s.Ring
	return b
}

// BalancerCounts returns the traffic counters of the real servers that the eBPF
// programs balance, by the service's name and the real server's address. Port 0
// means the port that the client has dialled. It is safe for concurrent use.
func (h *Handle) BalancerCounts() (map[string]map[netip.AddrPort]ebpf.RealCounts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	return p.Balancer().RealCounts(p.Flows())
}
