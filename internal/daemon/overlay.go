package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/overlay"
	"fairlead/internal/plan"
)

// PeerPathView is what a check of an overlay found out about the way to a host.
type PeerPathView struct {
	// Peer is the other host's own address in the network, Remote that on the
	// underlay.
	Peer   netip.Addr `json:"peer"`
	Remote netip.Addr `json:"remote"`
	// Problems are what is wrong, each with what to do; none if all is well.
	Problems []string `json:"problems,omitempty"`
}

// CheckNetwork speaks to the other hosts of an overlay, and finds out whether
// it carries what it should.
func (d *Daemon) CheckNetwork(ctx context.Context, name string) ([]PeerPathView, error) {
	targets, err := d.peerPaths(name)
	if err != nil {
		return nil, err
	}
	views, errs := make([]PeerPathView, len(targets)), make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			t.Enter = d.cfg.Host.Do
			report, err := t.Check(ctx)
			if err == nil && !report.Replies {
				report.Blocked, err = d.blocked(t)
			}
			views[i], errs[i] = PeerPathView{Peer: t.Peer, Remote: t.Remote}, err
			for _, f := range report.Findings() {
				views[i].Problems = append(views[i].Problems, f.String())
			}
		})
	}
	all.Wait()
	return views, errors.Join(errs...)
}

// blocked names what in the host's own firewall drops the datagrams of an overlay
// from or to another host; empty if nothing does for certain. Connection tracking
// may leave them alone, which rules at prerouting and output decide.
func (d *Daemon) blocked(t overlay.Target) (string, error) {
	all, _, err := d.cfg.Host.Ruleset()
	if err != nil {
		return "", err
	}
	route, err := d.cfg.Host.RouteTo(kernel.RouteQuery{To: t.Remote})
	if err != nil {
		return "", err
	}
	port := t.Overlay.WirePort()
	in := rules.Packet{Proto: model.UDP, From: netip.AddrPortFrom(t.Remote, 0), To: netip.AddrPortFrom(route.Src, port), In: route.Link, Local: true}
	out := rules.Packet{Proto: model.UDP, From: netip.AddrPortFrom(route.Src, 0), To: netip.AddrPortFrom(t.Remote, port), Out: route.Link}
	for _, direction := range []struct {
		hooks  []string
		packet rules.Packet
	}{{[]string{"output", "postrouting"}, out}, {[]string{"prerouting", "input"}, in}} {
		p := direction.packet
		for _, hook := range direction.hooks {
			v := all.Filter(hook, p)
			if !v.Certain {
				break
			}
			if v.Action == rules.Drop || v.Action == rules.Reject {
				return v.Cause(), nil
			}
			p = v.Packet
		}
	}
	return "", nil
}

// peerPaths returns the ways to the other hosts of a network that is up.
func (d *Daemon) peerPaths(name string) ([]overlay.Target, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.desired.Networks, func(n model.Network) bool { return n.Name == name })
	if i < 0 {
		return nil, fault(NotFound, "there is no network %s: `fairlead network ls` lists them", name)
	}
	if by := d.desired.Networks[i].Driver; by != model.DriverVXLAN {
		return nil, fault(Invalid, "network %s: it is of driver %s, and only vxlan goes from host to host", name, by)
	}
	n, up := d.full.Network(name)
	if !up {
		return nil, fault(Conflict, "network %s: it is not on this host while nothing is attached to it: attach a sandbox first", name)
	}
	links, err := d.cfg.Host.Links(n.Asks())
	if err != nil {
		return nil, err
	}
	targets := overlay.Targets(n, plan.Facts{Links: links})
	if len(targets) == 0 {
		return nil, fault(Invalid, "network %s: the other hosts' own addresses are not known: list their ranges with the peers", name)
	}
	return targets, nil
}

// answer answers the checks of other hosts, at the host's own addresses in the
// overlays that are up.
func (d *Daemon) answer() {
	own := map[netip.Addr]int{} // with the network's MTU
	for _, n := range d.full.Networks {
		for _, s := range n.Subnets {
			if n.Driver == model.DriverVXLAN {
				own[s.HostAddress()] = n.LinkMTU()
			}
		}
	}
	for a, r := range d.answers {
		if own[a] == 0 {
			d.warn("end answers to checks", r.Close())
			delete(d.answers, a)
		}
	}
	for a, mtu := range own {
		if r := d.answers[a]; r != nil {
			r.SetMTU(mtu)
			continue
		}
		d.warn("answer checks", d.cfg.Host.Do(func() error {
			r, err := overlay.Respond(a)
			if err == nil {
				r.SetMTU(mtu)
				d.answers[a] = r
			}
			return err
		}))
	}
}

// silence ends all answers.
func (d *Daemon) silence() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, r := range d.answers {
		d.warn("end answers to checks", r.Close())
		delete(d.answers, a)
	}
}

func (d *Daemon) warn(what string, err error) {
	if err != nil {
		d.cfg.Log.Warn(what, "error", err)
	}
}
