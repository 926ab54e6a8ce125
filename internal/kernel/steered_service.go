package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/kernel/steer"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// steeredSchedulers are the schedulers in the order of the numbers that the
// eBPF table has them by, and what the programs make of each.
var steeredSchedulers = []struct {
	name model.Scheduler
	by   uint8
}{
	{model.MaglevHashing, steer.ByFlow}, {model.SourceHashing, steer.ByClient},
	{model.RoundRobin, steer.ByTurn}, {model.WeightedRoundRobin, steer.ByTurn},
	{model.LeastConnection, steer.ByCount}, {model.WeightedLeastConnection, steer.ByLoad},
}

// steeredForwards are the ways to forward by the numbers that the table has.
var steeredForwards = map[model.Forward]uint8{
	model.ForwardNAT: steer.ForwardNAT, model.ForwardDirect: steer.ForwardDirect, model.ForwardTunnel: steer.ForwardTunnel,
}

// tryServices asks the kernel once, as it answers each time alike.
var tryServices = sync.OnceValue(steer.TryServices)

// Balances says why the kernel does not take the eBPF programs with what virtual
// services need. To find out takes it much of a second: so it is no part of Probe,
// but asked when there is a service.
func (*Host) Balances() error {
	if err := tryServices(); err != nil {
		return fmt.Errorf("%w: run %s, built with CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF", err, needed(plan.FeatureServices))
	}
	return nil
}

// Prepare makes the programs take services if a step brings one: so those that are
// attached from now on need not be replaced in the next moment.
func (h *Host) Prepare(ops []plan.Op) error {
	if !slices.ContainsFunc(ops, func(op plan.Op) bool { return !op.Del && isServed(op.Object) }) {
		return nil
	}
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p, err := h.plane()
	if err != nil {
		return err
	}
	if err := h.ns.Do(p.Serve); err != nil {
		return errors.Join(err, h.unloadIdle())
	}
	return nil
}

// serve carries out the steps on virtual services, and ends the flows of what
// they take away.
func (h *Host) serve(p *steer.Plane, links indices, ops []plan.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if slices.ContainsFunc(ops, func(op plan.Op) bool { return !op.Del }) {
		if err := h.ns.Do(p.Serve); err != nil {
			return err
		}
	}
	var gone steer.Gone
	b, ways := p.Balancer(), ways{}
	for _, op := range ops {
		s := op.Object.(plan.Steered)
		if op.Del {
			if err := b.Del(s.Service, &gone); err != nil {
				return fmt.Errorf("remove %s: %w", s.Key(), err)
			}
			continue
		}
		if !b.Intact(s.Service) {
			b.Restore(s.Service)
		}
		service, err := h.steeredService(links, ways, s.Balanced)
		if err == nil {
			err = b.Set(service, &gone)
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", s.Key(), err)
		}
	}
	return errors.Join(b.Tell(), h.endServed(p, &gone))
}

// endServed ends the flows of what has gone: those over TCP by a reset to both
// sides, and sockets of the host's own that were led there.
func (h *Host) endServed(p *steer.Plane, gone *steer.Gone) error {
	if !gone.Any() {
		return nil
	}
	ended, err := p.Ended(gone)
	if err == nil {
		err = errors.Join(p.Forget(ended), h.endLocal(p))
	}
	if err != nil {
		return err
	}
	ended = slices.DeleteFunc(ended, func(f steer.Flow) bool { return f.UDP || f.Stale })
	err = h.ns.Do(func() error {
		var errs []error
		for _, f := range ended {
			errs = append(errs, unheard(resetFlow(f)))
		}
		return errors.Join(errs...)
	})
	var reset []Flow
	for _, f := range ended {
		if !f.Closing {
			reset = append(reset, Flow{Proto: model.TCP, Client: f.Client, Host: f.Host, Target: f.Endpoint})
		}
	}
	h.ended.add(reset, nil)
	return err
}

// unheard leaves out that a reset cannot be sent to where no way leads, or where a
// firewall lets none go: nobody misses it there.
func unheard(err error) error {
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// steeredService turns a service into the table's form.
func (h *Host) steeredService(links indices, ways ways, b plan.Balanced) (steer.Service, error) {
	s := steer.Service{Name: b.Service, UDP: b.Proto == model.UDP, Frontends: b.Frontends.List(),
		Forward: steeredForwards[b.Forward], Persistence: uint32(b.Persistence / time.Second)}
	if b.Tunnel.Type == model.TunnelGUE {
		s.GUE = b.Tunnel.Port
	}
	number := slices.IndexFunc(steeredSchedulers, func(known struct {
		name model.Scheduler
		by   uint8
	}) bool {
		return known.name == b.Scheduler
	})
	if number < 0 {
		return s, fmt.Errorf("there is no scheduler %s", b.Scheduler)
	}
	s.Scheduler, s.Scheduling = uint8(number), steeredSchedulers[number].by
	for _, backend := range b.Backends.List() {
		s.Reals = append(s.Reals, h.steeredReal(links, ways, backend))
	}
	s.Ring = ringOf(b)
	return s, nil
}

// steeredReal turns a real server into the table's form. One that no route leads
// to has no link.
func (h *Host) steeredReal(links indices, ways ways, b plan.Backend) steer.Real {
	r := steer.Real{At: b.At, Weight: b.Weight, Seen: b.Gateway, Ifindex: links[b.Link]}
	if b.Masquerade {
		r.Flags |= steer.RealMasquerade
	}
	if b.Draining {
		r.Flags |= steer.RealDraining
	}
	if b.Tunnel {
		r.Flags |= steer.RealTunnel
	}
	if b.Here {
		r.Flags |= steer.RealHere
	} else if b.Link == "" {
		r.Flags |= steer.RealRemote
		way := ways.to(h, b.At.Addr())
		r.Seen, r.Ifindex = way.from, way.ifindex
	}
	return r
}

// way is how the host reaches another: the address that it speaks from, and the
// link. It is empty where no route leads there.
type way struct {
	from    netip.Addr
	ifindex uint32
}

// ways are those that were asked for, so that none is twice.
type ways map[netip.Addr]way

func (w ways) to(h *Host, addr netip.Addr) way {
	found, known := w[addr]
	if !known {
		found = h.wayTo(addr)
		w[addr] = found
	}
	return found
}

func (h *Host) wayTo(addr netip.Addr) (w way) {
	handle, err := h.at("")
	if err != nil {
		return w
	}
	list, err := handle.RouteGet(addr.AsSlice())
	if err != nil || len(list) == 0 || list[0].Type != unix.RTN_UNICAST {
		return w
	}
	w.from, _ = address(list[0].Src)
	w.ifindex = uint32(list[0].LinkIndex)
	return w
}

// ringOf returns the order in which real servers are chosen, as indexes: the
// Maglev table, each as often as it weighs, or each once.
func ringOf(b plan.Balanced) []uint16 {
	backends := b.Backends.List()
	switch b.Scheduler {
	case model.MaglevHashing, model.SourceHashing:
		ring := make([]uint16, b.Ring.Len())
		for i := range ring {
			ring[i] = uint16(b.Ring.At(i))
		}
		return ring
	case model.WeightedRoundRobin:
		return interleave(weightsOf(backends))
	}
	var ring []uint16
	for i, w := range weightsOf(backends) {
		if w > 0 {
			ring = append(ring, uint16(i))
		}
	}
	return ring
}

// weightsOf returns the weights for new flows.
func weightsOf(backends []plan.Backend) []int {
	weights := make([]int, len(backends))
	for i, b := range backends {
		if !b.Draining {
			weights[i] = int(b.Weight)
		}
	}
	return weights
}

// maxTurns bounds the turns of weighted round robin; beyond it weights are
// rounded, each to one turn at least.
const maxTurns = 16384

// interleave returns the order of turns in which each has as many as it weighs,
// and those of one are far apart (nginx's smooth weighted round robin).
func interleave(weights []int) []uint16 {
	divisor, sum := 0, 0
	for _, w := range weights {
		divisor, sum = gcd(w, divisor), sum+w
	}
	if sum == 0 {
		return nil
	}
	shares := make([]int, len(weights))
	total := 0
	for i, w := range weights {
		shares[i] = w / divisor
		if sum/divisor > maxTurns && w > 0 {
			shares[i] = max(1, w*maxTurns/sum)
		}
		total += shares[i]
	}
	ring, gathered := make([]uint16, total), make([]int, len(weights))
	for turn := range ring {
		best := -1
		for i, share := range shares {
			gathered[i] += share
			if share > 0 && (best < 0 || gathered[i] > gathered[best]) {
				best = i
			}
		}
		gathered[best] -= total
		ring[turn] = uint16(best)
	}
	return ring
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// readServed returns the services that the table holds: those of the keys, or
// all. One that was hurt, or whose ways have changed, is not as it should be,
// and left out.
func (h *Host) readServed(keys map[string]bool) (plan.Plan, error) {
	p, err := h.planeIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	ways := ways{}
	var names map[uint32]string
	var all plan.Plan
	for _, s := range p.Balancer().Services() {
		o := plan.Steered{Balanced: plan.Balanced{Service: s.Name}}
		if keys != nil && !keys[o.Key()] || !p.Balancer().Intact(s.Name) {
			continue
		}
		if names == nil {
			if names, err = h.linkNames(); err != nil {
				return nil, err
			}
		}
		if o.Balanced = balancedOf(s, names, func(to netip.Addr) way { return ways.to(h, to) }); o.Service != "" {
			all = append(all, o)
		}
	}
	return all, nil
}

// linkNames maps the indices of the host's links to their names.
func (h *Host) linkNames() (map[uint32]string, error) {
	links, err := h.indices()
	names := make(map[uint32]string, len(links))
	for name, index := range links {
		names[index] = name
	}
	return names, err
}

// balancedOf turns what the table holds back into a service; an empty one if a
// way has changed, where that is asked.
func balancedOf(s steer.Service, names map[uint32]string, wayTo func(netip.Addr) way) plan.Balanced {
	b := plan.Balanced{Service: s.Name, Proto: model.TCP, Persistence: time.Duration(s.Persistence) * time.Second}
	if s.UDP {
		b.Proto = model.UDP
	}
	for forward, number := range steeredForwards {
		if number == s.Forward {
			b.Forward = forward
		}
	}
	if s.GUE != 0 {
		b.Tunnel = model.Tunnel{Type: model.TunnelGUE, Port: s.GUE}
	}
	if int(s.Scheduler) < len(steeredSchedulers) {
		b.Scheduler = steeredSchedulers[s.Scheduler].name
	}
	frontends := make([]model.Frontend, len(s.Frontends))
	for i, at := range s.Frontends {
		frontends[i] = model.Frontend{Proto: b.Proto, At: at}
	}
	b.Frontends = plan.PackFrontends(frontends)
	var backends []plan.Backend
	for _, r := range s.Reals {
		backend := plan.Backend{At: r.At, Weight: r.Weight, Draining: r.Flags&steer.RealDraining != 0,
			Masquerade: r.Flags&steer.RealMasquerade != 0, Tunnel: r.Flags&steer.RealTunnel != 0,
			Here: r.Flags&steer.RealHere != 0}
		if r.Flags&(steer.RealRemote|steer.RealHere) == 0 {
			backend.Link, backend.Gateway = names[r.Ifindex], r.Seen
		} else if wayTo != nil && !backend.Here && wayTo(r.At.Addr()) != (way{r.Seen, r.Ifindex}) {
			return plan.Balanced{}
		}
		backends = append(backends, backend)
	}
	b.Backends = plan.PackBackends(backends)
	if s.Scheduling == steer.ByFlow || s.Scheduling == steer.ByClient {
		b.Ring = plan.PackRing(s.Ring)
	}
	return b
}

// BalancerCounts returns what has gone to the real servers of each service that
// the eBPF programs balance, by the service's name and where the real server is:
// port 0 is the one that the client has dialled.
func (h *Host) BalancerCounts() (map[string]map[netip.AddrPort]steer.RealCounts, error) {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p, err := h.planeIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	return p.RealCounts()
}
