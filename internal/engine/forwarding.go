package engine

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// IP forwarding is a setting of the whole host, and the kernel changes more than it
// (net/ipv4/devinet.c: inet_forward_change; net/ipv6/addrconf.c:
// addrconf_fixup_forwarding):
//
//   - It overwrites the forwarding of every link, and accept_redirects of IPv4.
//   - With IPv6 it ignores router advertisements on links whose accept_ra is 1, and
//     deletes the routes that it has learnt from them. A host that has its default
//     route from a router would lose it.
//
// So the engine first makes such links accept router advertisements although the host
// forwards, and records what the kernel overwrites, to restore it later. It does so only
// on links on which a router is expected (rtnl.RouterLink): what is behind other links,
// such as virtual machines, must not become the host's router.

// routers are the links on which the host accepts router advertisements, as far as the
// engine knows.
type routers struct {
	known bool
	links []string
}

// keepsRouters reports whether the engine knows the routers of a host that it has made
// forward.
func (e *Engine) keepsRouters() bool {
	return e.routers.known && slices.Contains(e.applied, plan.Object(plan.IPForwarding(false)))
}

// keepRouters adds to a plan that turns on IPv6 forwarding what the host needs to keep
// its routers. It adds nothing if the host forwarded before Fairlead: its administrator
// then has decided what each link accepts.
func (e *Engine) keepRouters(p plan.Plan, record store.Record) (plan.Plan, error) {
	forwarding := plan.IPForwarding(false)
	at := slices.Index(p, plan.Object(forwarding))
	setting, recorded := record.Setting("", forwarding.Name)
	if at < 0 || recorded && setting.Before == forwarding.Value || !recorded && e.isSet(forwarding) {
		return p, nil
	}
	if !e.keepsRouters() {
		links, err := routerLinks(e.cfg.Kernel.Net(), record)
		if err != nil {
			return nil, err
		}
		e.routers = routers{true, links}
	}
	var keep plan.Plan
	for _, link := range e.routers.links {
		keep = append(keep, plan.AcceptRA(link))
	}
	return slices.Insert(p, at, keep...), nil
}

// routerLinks returns the host's links on which it expects a router and accepts router
// advertisements, or did so before Fairlead turned on forwarding.
func routerLinks(net *rtnl.Reader, record store.Record) ([]string, error) {
	confs, err := net.RouterLinks()
	if err != nil {
		return nil, fmt.Errorf("read what the host's links accept: %w", err)
	}
	var links []string
	for _, c := range confs {
		_, ours := record.Setting("", plan.AcceptRA(c.Link).Name)
		_, forwarded := record.Setting("", c.Forwarding().Name)
		if c.AcceptRA == "1" && !forwarded && c.Expected || c.AcceptRA == "2" && ours {
			links = append(links, c.Link)
		}
	}
	slices.Sort(links)
	return links, nil
}

// routersChanged reports whether keepRouters would add other settings, and makes the
// next plan read the links again.
func (e *Engine) routersChanged() (bool, error) {
	if !e.keepsRouters() {
		return false, nil
	}
	record, err := e.load()
	if err != nil {
		return false, err
	}
	links, err := routerLinks(e.cfg.Kernel.Net(), record)
	if err != nil || slices.Equal(links, e.routers.links) {
		return false, err
	}
	e.routers.known = false
	return true, nil
}

// overwritten returns the settings of the host that the kernel changes with the
// setting, and that are not as the kernel leaves them when it is turned off again. They
// have no Value, because Fairlead does not set them.
func overwritten(net *rtnl.Reader, s plan.Sysctl) ([]store.Setting, error) {
	v4 := s == plan.IPForwarding(true)
	if !v4 && s != plan.IPForwarding(false) {
		return nil, nil
	}
	var all []store.Setting
	record := func(name, unusual string) error {
		now, err := net.ReadSysctl(plan.Sysctl{Name: name})
		if err == nil && now == unusual {
			all = append(all, store.Setting{Name: name, Before: now})
		}
		return err
	}
	if v4 {
		if err := record("net.ipv4.conf.all.accept_redirects", "0"); err != nil {
			return nil, err
		}
	}
	confs, err := net.ReadConfs("")
	if err != nil {
		return nil, err
	}
	for _, link := range append(rtnl.Forwarders(confs, v4), "default") {
		if err := record(plan.LinkForwarding(v4, link).Name, "1"); err != nil && !isAbsent(err) {
			return nil, err
		}
	}
	return all, nil
}

// restoreOverwritten restores what the kernel has changed with the setting.
func restoreOverwritten(k Kernel, record *store.Record, with plan.Sysctl) error {
	for _, s := range record.Settings {
		if s.Value != "" || leader(s) != with.Name {
			continue
		}
		_, err := k.Apply([]plan.Op{{Object: plan.Sysctl{Name: s.Name, Value: s.Before}}})
		if err != nil && !isAbsent(err) {
			return err
		}
	}
	return nil
}

// leader returns the name of the setting with which the kernel changes this one: see
// overwritten. It returns the setting's own name if it is one that Fairlead sets.
func leader(s store.Setting) string {
	if s.Value != "" {
		return s.Name
	}
	return plan.IPForwarding(strings.HasPrefix(s.Name, "net.ipv4.")).Name
}
