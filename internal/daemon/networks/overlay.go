package networks

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"fairlead/internal/api"
	"fairlead/internal/daemon/state"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/overlay"
	"fairlead/internal/plan"
)

// Overlays checks the paths to the other hosts of overlays, and answers their checks.
type Overlays struct {
	state    *state.State
	kernel   Kernel
	firewall Firewall
	// enter runs a function on a thread in the host's network namespace.
	enter func(func() error) error
	// responders answer the checks of other hosts, by the local address. The mutex of the state protects them.
	responders map[netip.Addr]*overlay.Responder
}

// Firewall is the part of a host that has its firewall. *kernel.Host implements it.
type Firewall interface {
	NFT() *nft.Handle
}

// NewOverlays returns Overlays that answers no checks yet. enter runs a function on a thread in the host's network
// namespace.
func NewOverlays(s *state.State, k Kernel, f Firewall, enter func(func() error) error) *Overlays {
	return &Overlays{state: s, kernel: k, firewall: f, enter: enter, responders: map[netip.Addr]*overlay.Responder{}}
}

// Check sends test datagrams to the other hosts of an overlay, and reports the problems of the path to each. Returns a
// Fault with code NotFound if there is no such network, and with another code if the network has no paths to check. It
// locks the mutex of the state, but not while it waits for the other hosts.
func (o *Overlays) Check(ctx context.Context, name string) ([]api.PeerPathView, error) {
	targets, err := o.peerPaths(name)
	if err != nil {
		return nil, err
	}
	views, errs := make([]api.PeerPathView, len(targets)), make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			t.Enter = o.enter
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
func (o *Overlays) blocked(t overlay.Target) (string, error) {
	all, _, err := o.firewall.NFT().Ruleset()
	if err != nil {
		return "", err
	}
	route, err := o.kernel.Net().RouteTo(rtnl.RouteQuery{To: t.Remote})
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
// host. It locks the mutex of the state.
func (o *Overlays) peerPaths(name string) ([]overlay.Target, error) {
	o.state.Lock()
	defer o.state.Unlock()
	desired, known := o.state.Desired().Network(name)
	if !known {
		return nil, api.Faultf(api.NotFound, "there is no network %s: `fairlead network ls` lists them", name)
	}
	if driver := desired.Driver; !driver.Traits().Overlay {
		overlays := model.Drivers(func(t model.Traits) bool { return t.Overlay })
		return nil, api.Faultf(api.Invalid,
			"network %s: it has driver %s, and only %s networks connect hosts", name, driver, model.OneOf(overlays))
	}
	n, up := o.state.Applied().Network(name)
	if !up {
		return nil, api.Faultf(api.Conflict,
			"network %s: it does not exist on this host while it has no attachment: attach a sandbox first", name)
	}
	links, err := o.kernel.Net().Links(n.Asks())
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

// Update answers the checks of other hosts, at the host's addresses in the
// overlays that exist on this host. The mutex of the state must be locked.
func (o *Overlays) Update() {
	mtus := map[netip.Addr]int{} // by the host's address
	for _, n := range o.state.Applied().Networks {
		for _, s := range n.Subnets {
			if n.Traits().Overlay {
				mtus[s.HostAddress()] = n.LinkMTU()
			}
		}
	}
	for a, r := range o.responders {
		if mtus[a] == 0 {
			o.state.Warn("close the responder of an overlay", r.Close())
			delete(o.responders, a)
		}
	}
	for a, mtu := range mtus {
		if r := o.responders[a]; r != nil {
			r.SetMTU(mtu)
			continue
		}
		o.state.Warn("open the responder of an overlay", o.enter(func() error {
			r, err := overlay.Respond(a)
			if err == nil {
				r.SetMTU(mtu)
				o.responders[a] = r
			}
			return err
		}))
	}
}

// Close ends all answers to checks. It locks the mutex of the state.
func (o *Overlays) Close() {
	o.state.Lock()
	defer o.state.Unlock()
	for a, r := range o.responders {
		o.state.Warn("close the responder of an overlay", r.Close())
		delete(o.responders, a)
	}
}
