package ipvs

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// Handle sets, deletes and reads Fairlead's virtual services of IPVS in a network
// namespace. It is safe for concurrent use.
type Handle struct {
	ns       *netns.Namespace
	balancer balancer
}

// New returns a Handle. It connects to IPVS when it is first needed, because this
// may load the module.
func New(ns *netns.Namespace) *Handle { return &Handle{ns: ns} }

// Close closes the connection. It leaves the services unchanged.
func (h *Handle) Close() error { return h.balancer.close() }

// Release clears the cached state.
func (h *Handle) Release() { h.balancer.forget() }

// balancer is a host's connection to IPVS and its cached state.
type balancer struct {
	mu   sync.Mutex
	conn *Conn
	// ours are Fairlead's virtual services as this process knows them. A service
	// that another program has removed and created again still belongs to Fairlead.
	ours map[ID]plan.IPVSService
	// listed are all virtual services, cached while one observation runs.
	listed map[ID]Service
}

func (b *balancer) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		return nil
	}
	return b.conn.Close()
}

// ipvsMark marks Fairlead's virtual services: bits of the flags that the kernel
// stores without using them. ipvsMarked is the mask.
const ipvsMark, ipvsMarked = 0xfa1e0000, 0xffff0000

// ipvsRealMark is the tunnel port of Fairlead's real servers. The kernel stores it
// too and uses it only for GUE (Linux 5.3). `ipvsadm -E` removes the mark of the
// service but not those of its real servers. Real servers with GUE have no mark.
const ipvsRealMark = 0xfa1e

// isMarked reports whether a service with these real servers has Fairlead's mark.
func isMarked(s Service, reals []Destination) bool {
	return s.Flags&ipvsMarked == ipvsMark || slices.ContainsFunc(reals, realMarked)
}

func realMarked(d Destination) bool {
	return d.TunnelType == IPIP && d.TunnelPort == ipvsRealMark
}

// forwards maps the forwarding methods to their numbers in IPVS.
var forwards = map[model.Forward]uint32{model.ForwardNAT: NAT, model.ForwardDirect: Direct, model.ForwardTunnel: Tunnel}

// open connects to the IPVS of the host's namespace. If necessary, and if the
// kernel can do that, this loads the module.
func (b *balancer) open(ns *netns.Namespace) (err error) {
	if b.conn == nil {
		b.conn, err = Open(int(ns.File().Fd()))
		b.ours = map[ID]plan.IPVSService{}
	}
	return err
}

// reach connects if IPVS is loaded in the host's namespace. It does not request the
// generic netlink family first, because that would start modprobe each time.
func (b *balancer) reach(ns *netns.Namespace) (there bool, err error) {
	if b.conn != nil {
		return true, nil
	}
	err = ns.Do(func() error {
		_, err := os.Stat("/proc/thread-self/net/ip_vs")
		there = err == nil
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil || !there {
		return false, err
	}
	return true, b.open(ns)
}

func idOf(s plan.IPVSService) ID {
	return ID{Protocol: uint16(nlutil.Protocols[s.Proto]), At: s.At}
}

// toIPVS converts a service to the form of IPVS.
func toIPVS(s plan.IPVSService) Service {
	flags := uint32(ipvsMark)
	switch s.Scheduler.Traits().Hashes {
	case model.ClientKey:
		flags |= Fallback
	case model.FullKey:
		flags |= Fallback | Ports
	}
	if s.Persistence > 0 {
		flags |= Persistent
	}
	return Service{ID: idOf(s), Scheduler: string(s.Scheduler), Flags: flags,
		Timeout: uint32(s.Persistence / time.Second), Bits: s.At.Addr().BitLen()}
}

// fromIPVS converts a service of IPVS. It leaves the scheduler empty if the service
// has settings that a plan cannot express.
func fromIPVS(s Service, all []Destination) plan.IPVSService {
	found := plan.IPVSService{Proto: model.TCP, At: s.At, Scheduler: model.Scheduler(s.Scheduler),
		Forward: model.ForwardNAT}
	if s.Protocol == unix.IPPROTO_UDP {
		found.Proto = model.UDP
	}
	if s.Flags&Persistent != 0 {
		found.Persistence = time.Duration(s.Timeout) * time.Second
	}
	like := toIPVS(found)
	if (s.Flags^like.Flags)&^ipvsMarked != 0 || s.Bits != like.Bits || s.PE != "" {
		found.Scheduler = ""
	}
	var reals []plan.Backend
	for i, d := range all {
		reals = append(reals, plan.Backend{At: d.At, Weight: d.Weight})
		forward, tunnel := forwardOf(d)
		if i == 0 {
			found.Forward, found.Tunnel = forward, tunnel
		} else if found.Forward != forward || found.Tunnel != tunnel {
			found.Forward, found.Tunnel = "", model.Tunnel{}
		}
	}
	slices.SortFunc(reals, func(a, b plan.Backend) int { return a.At.Compare(b.At) })
	found.Reals = reals
	return found
}

// tunnelSums maps the checksum settings of tunnels to their flags in IPVS.
var tunnelSums = map[model.TunnelChecksum]uint16{"": 0, model.TunnelSummed: TunnelSummed,
	model.TunnelRemoteSummed: TunnelRemoteSummed}

// toDestination converts a real server to the form of IPVS.
func toDestination(s plan.IPVSService, r plan.Backend) Destination {
	d := Destination{At: r.At, Forward: forwards[s.Forward], Weight: r.Weight, TunnelPort: ipvsRealMark}
	if s.Tunnel.Type == model.TunnelGUE {
		d.TunnelType, d.TunnelPort, d.TunnelFlags = GUE, s.Tunnel.Port, tunnelSums[s.Tunnel.Checksum]
	}
	return d
}

// forwardOf returns a destination's forwarding method, or "" if a plan cannot
// express it.
func forwardOf(d Destination) (forward model.Forward, by model.Tunnel) {
	if d.Upper != 0 || d.Lower != 0 {
		return "", by
	}
	if d.TunnelType != IPIP {
		return gueForwardOf(d)
	}
	for forward, number := range forwards {
		if number == d.Forward {
			return forward, by
		}
	}
	return "", by
}

// gueForwardOf is forwardOf for a destination with a tunnel other than IPIP.
func gueForwardOf(d Destination) (model.Forward, model.Tunnel) {
	for sum, flags := range tunnelSums {
		if d.Forward == Tunnel && d.TunnelType == GUE && d.TunnelFlags == flags {
			return model.ForwardTunnel, model.Tunnel{Type: model.TunnelGUE, Port: d.TunnelPort, Checksum: sum}
		}
	}
	return "", model.Tunnel{}
}

// SetIPVS creates a virtual service or changes one of Fairlead's. It adopts another
// program's service if that has the same settings.
func (h *Handle) SetIPVS(s plan.IPVSService) error {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(h.ns); err != nil {
		return err
	}
	err := b.conn.AddService(toIPVS(s))
	if err == nil {
		b.ours[idOf(s)] = s
		return b.setReals(s, nil)
	}
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	have, err := b.conn.Destinations(idOf(s))
	if err != nil {
		return err
	}
	if err := b.takeOver(s, have); err != nil {
		return err
	}
	b.ours[idOf(s)] = s
	return b.setReals(s, have)
}

// takeOver changes an existing service, with these real servers, to match s.
func (b *balancer) takeOver(s plan.IPVSService, reals []Destination) error {
	if _, known := b.ours[idOf(s)]; !known {
		there, err := b.find(idOf(s))
		if err != nil {
			return err
		}
		if now := fromIPVS(there, reals); !isMarked(there, reals) && !alike(now, s) {
			return fmt.Errorf("a virtual service at %s/%s exists and is not Fairlead's: remove it (%s), "+
				"or create one with the same settings to adopt it", s.At, s.Proto, s.Del()[0])
		}
	}
	return b.conn.SetService(toIPVS(s))
}

// alike reports whether both services have the same settings. The forwarding method
// is not compared if the existing service has no real servers.
func alike(now, want plan.IPVSService) bool {
	if len(now.Reals) == 0 {
		now.Forward, now.Tunnel = want.Forward, want.Tunnel
	}
	return plan.Equal(now, want)
}

func (b *balancer) find(id ID) (Service, error) {
	all, err := b.conn.Services()
	for _, s := range all {
		if s.ID == id {
			return s, err
		}
	}
	return Service{ID: id}, cmp.Or(err, error(unix.ESRCH))
}

// differs reports whether the settings of a real server differ.
func differs(now, want Destination) bool {
	return now.Forward != want.Forward || now.Weight != want.Weight || now.Upper != want.Upper ||
		now.Lower != want.Lower ||
		now.TunnelType != want.TunnelType || now.TunnelPort != want.TunnelPort || now.TunnelFlags != want.TunnelFlags
}

// setReals replaces the real servers of a service: it adds and changes servers
// first, then removes the others.
func (b *balancer) setReals(s plan.IPVSService, have []Destination) error {
	id := idOf(s)
	gone := map[netip.AddrPort]Destination{}
	for _, d := range have {
		gone[d.At] = d
	}
	for _, r := range s.Reals {
		now, there := gone[r.At]
		delete(gone, r.At)
		want := toDestination(s, r)
		var err error
		switch {
		case !there:
			err = b.conn.AddDestination(id, want)
		case differs(now, want):
			err = b.conn.SetDestination(id, want)
		}
		if err != nil {
			return fmt.Errorf("set real server %s: %w", r.At, err)
		}
	}
	for at, d := range gone {
		if err := b.conn.DelDestination(id, d); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove real server %s: %w", at, err)
		}
	}
	return nil
}

// DelIPVS removes a virtual service if it is Fairlead's.
func (h *Handle) DelIPVS(s plan.IPVSService) error {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if there, err := b.reach(h.ns); err != nil || !there {
		return err
	}
	if _, known := b.ours[idOf(s)]; !known {
		now, err := b.find(idOf(s))
		if err != nil {
			return err
		}
		if reals, err := b.conn.Destinations(now.ID); err != nil || !isMarked(now, reals) {
			return err
		}
	}
	delete(b.ours, idOf(s))
	return b.conn.DelService(idOf(s))
}
