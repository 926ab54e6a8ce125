package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// balancer is what a host knows of its IPVS.
type balancer struct {
	mu   sync.Mutex
	conn *ipvs.Conn
	// inUse are the virtual services of ours as we know them. One that somebody
	// else has removed and made again is ours still.
	inUse map[ipvs.ID]plan.IPVSService
	// locals are the addresses of our local routes, as we know them.
	locals map[netip.Addr]bool
	// listed are all virtual services, kept for as long as one observation takes.
	listed map[ipvs.ID]ipvs.Service
}

func (b *balancer) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		return nil
	}
	return b.conn.Close()
}

// ipvsMark is in the flags of a virtual service that is ours: bits that the
// kernel keeps and knows nothing of.
const ipvsMark, ipvsMarked = 0xfa1e0000, 0xffff0000

// ipvsRealMark is the port of a tunnel that its real servers have, of a kind that
// has no ports: the kernel keeps it, too, and knows it for GUE alone (Linux 5.3).
// `ipvsadm -E` takes the mark from the service, and leaves those. Real servers by
// GUE have none.
const ipvsRealMark = 0xfa1e

// isMarked reports whether a service with these real servers is ours.
func isMarked(s ipvs.Service, reals []ipvs.Destination) bool {
	return s.Flags&ipvsMarked == ipvsMark || slices.ContainsFunc(reals, realMarked)
}

func realMarked(d ipvs.Destination) bool {
	return d.TunnelType == ipvs.IPIP && d.TunnelPort == ipvsRealMark
}

// forwards are the numbers of the ways to forward.
var forwards = map[model.Forward]uint32{model.ForwardNAT: ipvs.NAT, model.ForwardDirect: ipvs.Direct, model.ForwardTunnel: ipvs.Tunnel}

// open connects to the IPVS of the host's namespace, which loads it where the
// kernel can do that.
func (b *balancer) open(ns *Netns) (err error) {
	if b.conn == nil {
		b.conn, err = ipvs.Open(int(ns.File().Fd()))
		b.inUse = map[ipvs.ID]plan.IPVSService{}
	}
	return err
}

// reach connects if IPVS is loaded in the host's namespace. To ask for its
// family of generic netlink instead would start modprobe each time.
func (b *balancer) reach(ns *Netns) (there bool, err error) {
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

func idOf(s plan.IPVSService) ipvs.ID {
	return ipvs.ID{Protocol: uint16(protoNumbers[s.Proto]), At: s.At}
}

// toIPVS returns the service as IPVS has it.
func toIPVS(s plan.IPVSService) ipvs.Service {
	flags := uint32(ipvsMark)
	switch s.Scheduler {
	case model.SourceHashing:
		flags |= ipvs.Fallback
	case model.MaglevHashing:
		flags |= ipvs.Fallback | ipvs.Ports
	}
	if s.Persistence > 0 {
		flags |= ipvs.Persistent
	}
	return ipvs.Service{ID: idOf(s), Scheduler: string(s.Scheduler), Flags: flags,
		Timeout: uint32(s.Persistence / time.Second), Bits: s.At.Addr().BitLen()}
}

// fromIPVS returns a service of IPVS as a plan has it.
func fromIPVS(s ipvs.Service, all []ipvs.Destination) plan.IPVSService {
	found := plan.IPVSService{Proto: model.TCP, At: s.At, Scheduler: model.Scheduler(s.Scheduler), Forward: model.ForwardNAT}
	if s.Protocol == unix.IPPROTO_UDP {
		found.Proto = model.UDP
	}
	if s.Flags&ipvs.Persistent != 0 {
		found.Persistence = time.Duration(s.Timeout) * time.Second
	}
	like := toIPVS(found)
	if (s.Flags^like.Flags)&^ipvsMarked != 0 || s.Bits != like.Bits || s.PE != "" {
		found.Scheduler = ""
	}
	var reals []plan.Backend
	for i, d := range all {
		reals = append(reals, plan.Backend{At: d.At, Weight: d.Weight})
		hop, tunnel := forwardOf(d)
		if i == 0 {
			found.Forward, found.Tunnel = hop, tunnel
		} else if found.Forward != hop || found.Tunnel != tunnel {
			found.Forward, found.Tunnel = "", model.Tunnel{}
		}
	}
	slices.SortFunc(reals, func(a, b plan.Backend) int { return a.At.Compare(b.At) })
	found.Reals = plan.PackBackends(reals)
	return found
}

// tunnelSums are the flags of tunnels by what they mean.
var tunnelSums = map[model.TunnelChecksum]uint16{"": 0, model.TunnelSummed: ipvs.TunnelSummed, model.TunnelRemoteSummed: ipvs.TunnelRemoteSummed}

// toDestination returns a real server as IPVS has it.
func toDestination(s plan.IPVSService, r plan.Backend) ipvs.Destination {
	d := ipvs.Destination{At: r.At, Forward: forwards[s.Forward], Weight: r.Weight, TunnelPort: ipvsRealMark}
	if s.Tunnel.Type == model.TunnelGUE {
		d.TunnelType, d.TunnelPort, d.TunnelFlags = ipvs.GUE, s.Tunnel.Port, tunnelSums[s.Tunnel.Checksum]
	}
	return d
}

// forwardOf returns how a destination is forwarded to, empty where it is so as
// no plan has it.
func forwardOf(d ipvs.Destination) (hop model.Forward, by model.Tunnel) {
	if d.Upper != 0 || d.Lower != 0 {
		return "", by
	}
	if d.TunnelType != ipvs.IPIP {
		return wrapOf(d)
	}
	for hop, number := range forwards {
		if number == d.Forward {
			return hop, by
		}
	}
	return "", by
}

// wrapOf is forwardOf one to which packets are wrapped in something else than IP.
func wrapOf(d ipvs.Destination) (model.Forward, model.Tunnel) {
	for sum, flags := range tunnelSums {
		if d.Forward == ipvs.Tunnel && d.TunnelType == ipvs.GUE && d.TunnelFlags == flags {
			return model.ForwardTunnel, model.Tunnel{Type: model.TunnelGUE, Port: d.TunnelPort, Checksum: sum}
		}
	}
	return "", model.Tunnel{}
}

// setIPVS makes a virtual service, or brings one of ours to the wanted state.
// One of somebody else is taken over if it is as ours shall be.
func (h *Host) setIPVS(s plan.IPVSService) error {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(h.ns); err != nil {
		return err
	}
	err := b.conn.AddService(toIPVS(s))
	if err == nil {
		b.inUse[idOf(s)] = s
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
	b.inUse[idOf(s)] = s
	return b.setReals(s, have)
}

// takeOver brings a service that is there, with real servers, to the wanted
// state.
func (b *balancer) takeOver(s plan.IPVSService, reals []ipvs.Destination) error {
	if _, ours := b.inUse[idOf(s)]; !ours {
		there, err := b.find(idOf(s))
		if err != nil {
			return err
		}
		if now := fromIPVS(there, reals); !isMarked(there, reals) && !alike(now, s) {
			return fmt.Errorf("a virtual service at %s/%s is there and is not Fairlead's: remove it (%s), or make one that is the same, which is taken over",
				s.At, s.Proto, s.Del()[0])
		}
	}
	return b.conn.SetService(toIPVS(s))
}

// alike reports whether both do the same; one without real servers says nothing
// of how they are forwarded to.
func alike(now, want plan.IPVSService) bool {
	if now.Reals == "" {
		now.Forward, now.Tunnel = want.Forward, want.Tunnel
	}
	return now == want
}

func (b *balancer) find(id ipvs.ID) (ipvs.Service, error) {
	all, err := b.conn.Services()
	for _, s := range all {
		if s.ID == id {
			return s, err
		}
	}
	return ipvs.Service{ID: id}, cmp.Or(err, error(unix.ESRCH))
}

// differs reports whether a real server is otherwise than wanted.
func differs(now, want ipvs.Destination) bool {
	return now.Forward != want.Forward || now.Weight != want.Weight || now.Upper != want.Upper || now.Lower != want.Lower ||
		now.TunnelType != want.TunnelType || now.TunnelPort != want.TunnelPort || now.TunnelFlags != want.TunnelFlags
}

// setReals gives the service its real servers in the place of those that it
// has: first those that come.
func (b *balancer) setReals(s plan.IPVSService, have []ipvs.Destination) error {
	id := idOf(s)
	gone := map[netip.AddrPort]ipvs.Destination{}
	for _, d := range have {
		gone[d.At] = d
	}
	for _, r := range s.Reals.List() {
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
			return fmt.Errorf("real server %s: %w", r.At, err)
		}
	}
	for at, d := range gone {
		if err := b.conn.DelDestination(id, d); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove real server %s: %w", at, err)
		}
	}
	return nil
}

// delIPVS removes a virtual service if it is ours.
func (h *Host) delIPVS(s plan.IPVSService) error {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if there, err := b.reach(h.ns); err != nil || !there {
		return err
	}
	if _, ours := b.inUse[idOf(s)]; !ours {
		now, err := b.find(idOf(s))
		if err != nil {
			return err
		}
		if reals, err := b.conn.Destinations(now.ID); err != nil || !isMarked(now, reals) {
			return err
		}
	}
	delete(b.inUse, idOf(s))
	return b.conn.DelService(idOf(s))
}
