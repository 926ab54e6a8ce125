package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// virtual plans the virtual addresses that services need on links of the host, and
// the guard of those that only Fairlead adds to the host. Addresses that the host
// already has are adopted: they stay unchanged, and so do the ports at them.
func (e *Engine) virtual(s model.State, record store.Record) (plan.Plan, error) {
	if !slices.ContainsFunc(s.Services, isLocal) {
		return nil, leased(s)
	}
	adopted, err := notOurs(e.cfg.Kernel.Net(), record)
	if err != nil {
		return nil, err
	}
	guarded, links := map[netip.Addr]bool{}, map[netip.Addr]model.VirtualService{}
	var all plan.Plan
	for _, v := range s.Services {
		for _, a := range v.Addresses {
			if adopted[a] || !isLocal(v) {
				continue
			}
			guarded[a] = true
			if v.Link() == "" {
				continue
			}
			if first, known := links[a]; !known {
				links[a] = v
				all = append(all, plan.VirtualAddress{Link: v.Link(), Addr: a})
			} else if first.Link() != v.Link() {
				return nil, fmt.Errorf("service %s: address %s is already on %s, for service %s: set the same interface, or none",
					v.Name, a, first.Link(), first.Name)
			}
		}
	}
	settings, err := e.settings(s, record)
	if err != nil {
		return nil, err
	}
	if len(guarded) > 0 {
		settings = append(settings, guard(s, guarded))
	}
	return append(settings, all...), leased(s)
}

// settings plans the settings that keep the host from announcing the addresses of
// services that another host balances. A setting that is already as strict or
// stricter is not changed.
func (e *Engine) settings(s model.State, record store.Record) (plan.Plan, error) {
	if !slices.ContainsFunc(s.Services, isBehind) {
		return nil, nil
	}
	var all plan.Plan
	for _, o := range quiet("") {
		setting, _ := o.(plan.Sysctl)
		if _, ours := record.Setting(setting.Netns, setting.Name); !ours {
			now, err := e.cfg.Kernel.Net().ReadSysctl(setting)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", setting.Name, err)
			}
			if now >= setting.Value { // both have one digit
				continue
			}
		}
		all = append(all, o)
	}
	return all, nil
}

// isBehind reports whether another host balances the service and sends its IPv4
// packets to this host.
func isBehind(v model.VirtualService) bool {
	return v.Forward == model.ForwardLocal && slices.ContainsFunc(v.Addresses, netip.Addr.Is4)
}

// isLocal reports whether the service makes its addresses local: on a link, or with
// a local route if its data plane needs them.
func isLocal(v model.VirtualService) bool {
	return v.Link() != "" || v.Plane.Traits().NeedsLocalAddress
}

// notOurs returns the addresses on the host's links that Fairlead did not add.
func notOurs(net *rtnl.Reader, record store.Record) (map[netip.Addr]bool, error) {
	local, err := net.LocalAddrs()
	if err != nil {
		return nil, err
	}
	all := make(map[netip.Addr]bool, len(local))
	for _, a := range local {
		all[a] = true
	}
	for _, v := range record.Virtual {
		delete(all, v.Addr)
	}
	return all, nil
}

// guard returns the guard that opens the frontends of all services at the guarded
// addresses, and nothing else at them.
func guard(s model.State, guarded map[netip.Addr]bool) plan.Guard {
	var addresses, tcp, udp []model.Frontend
	for a := range guarded {
		addresses = append(addresses, model.Frontend{At: netip.AddrPortFrom(a, 0)})
	}
	for _, v := range s.Services {
		for _, f := range v.Frontends() {
			switch {
			case !guarded[f.At.Addr()]:
			case f.Proto == model.UDP:
				udp = append(udp, f)
			default:
				tcp = append(tcp, f)
			}
		}
	}
	sorted := func(all []model.Frontend) []netip.AddrPort {
		slices.SortFunc(all, func(a, b model.Frontend) int { return a.At.Compare(b.At) })
		return plan.FrontendAddrs(all)
	}
	return plan.Guard{Addresses: sorted(addresses), TCP: sorted(tcp), UDP: sorted(udp)}
}

// leased refuses virtual addresses that an endpoint has.
func leased(s model.State) error {
	virtual := map[netip.Addr]string{}
	for _, v := range s.Services {
		for _, a := range v.Addresses {
			virtual[a] = v.Name
		}
	}
	if len(virtual) == 0 {
		return nil
	}
	var errs []error
	for _, ep := range s.Endpoints {
		for _, a := range ep.Addresses {
			if name, clash := virtual[a]; clash {
				errs = append(errs,
					fmt.Errorf("service %s: %s is the address of endpoint %s: choose another, outside of the networks' subnets", name, a, ep.Name))
			}
		}
	}
	return errors.Join(errs...)
}

// shadowed refuses new frontends if a socket of another program listens there,
// because the service would take that program's clients. It allows them if the host
// itself is a real server at that port.
func shadowed(k Kernel, before, full model.State) error {
	known := map[model.Frontend]bool{}
	for _, v := range before.Services {
		for _, f := range v.Frontends() {
			known[f] = true
		}
	}
	owners := map[model.Frontend]string{}
	var mappings []plan.EBPFMapping
	for _, v := range full.Services {
		for _, f := range v.Frontends() {
			toFind := !v.Balances() ||
				slices.ContainsFunc(v.Reals, func(r model.RealServer) bool {
					return r.Local &&
						r.At(f.At.Port()).Port() == f.At.Port()
				})
			if !toFind && !known[f] {
				owners[f] = v.Name
				mappings = append(mappings, plan.EBPFMapping{Proto: f.Proto, Host: f.At.Addr(),
					Ports: model.Port(f.At.Port())})
			}
		}
	}
	if len(mappings) == 0 {
		return nil
	}
	err := k.Sockets().CheckPorts(mappings)
	var inUse *sockdiag.PortInUseError
	if !errors.As(err, &inUse) {
		return err
	}
	for f, name := range owners {
		if f.Proto == inUse.Proto && f.At.Port() == inUse.Addr.Port() {
			return fmt.Errorf("service %s: port %s/%s is in use by %s, and the service would take its clients: stop that program, make it listen on other addresses than %s, or choose another port",
				name, inUse.Addr, inUse.Proto, inUse.Owner, f.At.Addr())
		}
	}
	return err
}
