package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"fairlead/internal/api"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/overlay"
	"fairlead/internal/plan"
)

// overlays checks the paths to the other hosts of overlays, and answers their checks.
type overlays struct {
	*state
	// responders answer the checks of other hosts, by the local address.
	responders map[netip.Addr]*overlay.Responder
}

func newOverlays(s *state) *overlays {
	return &overlays{state: s, responders: map[netip.Addr]*overlay.Responder{}}
}

// CheckNetwork sends test datagrams to the other hosts of an overlay, and reports the
// problems of the path to each. Returns a Fault with code NotFound if there is no such
// network, and with another code if the network has no paths to check.
func (d *Daemon) CheckNetwork(ctx context.Context, name string) ([]api.PeerPathView, error) {
	return d.overlays.check(ctx, name)
}

// check implements CheckNetwork.
func (o *overlays) check(ctx context.Context, name string) ([]api.PeerPathView, error) {
	targets, err := o.peerPaths(name)
	if err != nil {
		return nil, err
	}
	views, errs := make([]api.PeerPathView, len(targets)), make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			t.Enter = o.cfg.Host.Do
			report, err := t.Check(ctx)
			if err == nil && !report.Replies {
				report.Blocked, err = o.blocked(t)
			}
			views[i], errs[i] = api.PeerPathView{Peer: t.Peer, Remote: t.Remote}, err
			for _, f := range report.Findings() {
				views[i].Problems = append(views[i].Problems, f.String())
			}
		})
	}
	all.Wait()
	return views, errors.Join(errs...)
}

// blocked returns the rule of the host's firewall that drops the overlay's datagrams
// from or to another host. It is empty if no rule certainly does. If rules at
// prerouting or output exempt the datagrams from connection tracking, blocked takes
// that into account.
func (o *overlays) blocked(t overlay.Target) (string, error) {
	all, _, err := o.cfg.Counters.NFT().Ruleset()
	if err != nil {
		return "", err
	}
	route, err := o.cfg.Kernel.Net().RouteTo(rtnl.RouteQuery{To: t.Remote})
	if err != nil {
		return "", err
	}
	port := t.Overlay.WirePort()
	in := rules.Packet{Proto: model.UDP, From: netip.AddrPortFrom(t.Remote, 0), To: netip.AddrPortFrom(route.Src, port),
		In: route.Link, Local: true}
	out := rules.Packet{Proto: model.UDP, From: netip.AddrPortFrom(route.Src, 0),
		To: netip.AddrPortFrom(t.Remote, port), Out: route.Link}
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

// peerPaths returns the paths to the other hosts of an overlay that exists on this
// host.
func (o *overlays) peerPaths(name string) ([]overlay.Target, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.desired.Networks, func(n model.Network) bool { return n.Name == name })
	if i < 0 {
		return nil, api.Faultf(api.NotFound, "there is no network %s: `fairlead network ls` lists them", name)
	}
	if driver := o.desired.Networks[i].Driver; !driver.Traits().Overlay {
		overlays := model.Drivers(func(t model.Traits) bool { return t.Overlay })
		return nil, api.Faultf(api.Invalid,
			"network %s: it has driver %s, and only %s networks connect hosts", name, driver, model.OneOf(overlays))
	}
	n, up := o.full.Network(name)
	if !up {
		return nil, api.Faultf(api.Conflict,
			"network %s: it does not exist on this host while it has no attachment: attach a sandbox first", name)
	}
	links, err := o.cfg.Kernel.Net().Links(n.Asks())
	if err != nil {
		return nil, err
	}
	targets := overlay.Targets(n, plan.Facts{Links: links})
	if len(targets) == 0 {
		return nil, api.Faultf(api.Invalid,
			"network %s: the addresses of the other hosts in it are not known: add their ranges to the peers", name)
	}
	return targets, nil
}

// update answers the checks of other hosts, at the host's addresses in the
// overlays that exist on this host.
func (o *overlays) update() {
	mtus := map[netip.Addr]int{} // by the host's address
	for _, n := range o.full.Networks {
		for _, s := range n.Subnets {
			if n.Traits().Overlay {
				mtus[s.HostAddress()] = n.LinkMTU()
			}
		}
	}
	for a, r := range o.responders {
		if mtus[a] == 0 {
			o.warn("close the responder of an overlay", r.Close())
			delete(o.responders, a)
		}
	}
	for a, mtu := range mtus {
		if r := o.responders[a]; r != nil {
			r.SetMTU(mtu)
			continue
		}
		o.warn("open the responder of an overlay", o.cfg.Host.Do(func() error {
			r, err := overlay.Respond(a)
			if err == nil {
				r.SetMTU(mtu)
				o.responders[a] = r
			}
			return err
		}))
	}
}

// close ends all answers to checks.
func (o *overlays) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for a, r := range o.responders {
		o.warn("close the responder of an overlay", r.Close())
		delete(o.responders, a)
	}
}
