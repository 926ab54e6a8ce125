package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// compose adds the requested attachment to the desired state, and fills in the values
// that the request leaves empty. If at has no path, the sandbox does not run: values
// that depend on its contents stay empty until it does.
func (d *Daemon) compose(req api.AttachRequest, at sandbox.Sandbox, b *watchedSandbox, seen kernel.Sandbox) (proposal, model.Attachment, []string, error) {
	next := proposal{d.desired}
	n, private, err := d.networkOf(req)
	if err != nil {
		return next, model.Attachment{}, nil, err
	}
	if private && !slices.ContainsFunc(next.Networks, func(o model.Network) bool { return o.Name == n.Name }) {
		next.Networks = append(slices.Clip(next.Networks), n)
	}
	a := model.Attachment{Endpoint: req.Endpoint, Ref: at.Ref, Namespace: b.namespace,
		Keep: req.Keep || n.Traits().MovesDevice && at.Kind != sandbox.Process, DHCP: req.DHCP, Private: private, Origin: req.Origin}
	if req.Keep && at.Kind == sandbox.Process {
		return next, a, nil, api.Faultf(api.Invalid,
			"keep: a process does not come back, and another process may get its PID: name the sandbox by its container, its network namespace or its path")
	}
	a.Network, a.Sandbox = n.Name, b.path
	have, known, err := d.existing(a)
	if err != nil {
		return next, a, nil, err
	}
	if a.Name == "" {
		a.Name = d.freeName(at, n)
	}
	if a.Addresses, a.Prefixes, err = sortAddresses(n, req.Addresses, req.Prefixes); err != nil {
		return next, a, nil, err
	}
	var notes []string
	switch {
	case known:
		a.Name = have.Name
		inherit(&a, have, at.Path == "")
	case a.Interface == "" && at.Path != "":
		a.Interface = d.freeInterface(at.Ref, seen)
	}
	if a.DHCP && a.MAC == "" && !n.Traits().MovesDevice && !n.Traits().ParentMAC {
		a.MAC = leaseMAC()
	}
	if err := d.defaultRoute(&a, n, have, known, seen, &notes); err != nil {
		return next, a, nil, err
	}
	alone := model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{withSandbox(a)}}
	if err := alone.Validate(); err != nil {
		return next, a, nil, &api.Fault{Code: api.Invalid, Err: fmt.Errorf("attach %s: %w", at.Ref, err)}
	}
	next.Desired = next.Desired.WithAttachment(a)
	return next, a, notes, nil
}

// inherit copies values that were chosen earlier for the attachment and that the
// request does not set.
func inherit(a *model.Attachment, have model.Attachment, absent bool) {
	if a.Interface == "" {
		a.Interface = have.Interface
	}
	if a.DHCP && have.DHCP && a.MAC == "" {
		a.MAC = have.MAC
	}
	if a.DHCP && have.DHCP && have.Namespace == a.Namespace {
		a.Lease = have.Lease
	}
	if absent && len(a.Gateways) == 0 {
		a.NoDefault = have.NoDefault
	}
}

// networkOf returns the network that the request names, or the private network of a
// device.
func (d *Daemon) networkOf(req api.AttachRequest) (n model.Network, private bool, err error) {
	if req.Device == "" {
		n, ok := model.State{Networks: d.desired.Networks}.Network(req.Network)
		if !ok {
			return n, false, api.Faultf(api.NotFound,
				"there is no network %q: create it with `fairlead network create`, or list them with `fairlead network ls`", req.Network)
		}
		private := slices.ContainsFunc(d.desired.Attachments, func(a model.Attachment) bool { return a.Private && a.Network == n.Name })
		return n, private, nil
	}
	name := deviceNetwork(req.Device, req.PKey)
	n = model.Network{Name: name, Driver: model.DriverDevice, Parent: req.Device, PKey: req.PKey}
	if have, ok := (model.State{Networks: d.desired.Networks}).Network(name); ok && !have.Equal(n) {
		return n, false, api.Faultf(api.Conflict,
			"network %s already exists and is not the network of device %s: remove it first", name, req.Device)
	}
	return n, true, nil
}

// deviceNetwork returns the name of the private network for a device.
func deviceNetwork(device string, pkey uint16) string {
	if pkey != 0 {
		return fmt.Sprintf("device-%s-%04x", device, pkey)
	}
	return "device-" + device
}

// withSandbox returns the endpoint of an attachment. If its sandbox does not run, the
// endpoint has a placeholder path.
func withSandbox(a model.Attachment) model.Endpoint {
	e := a.Leased()
	if e.Sandbox == "" {
		e.Sandbox = "/" + a.Ref
	}
	return e
}

// completeArrived fills in the values of an attachment that was created before its
// sandbox ran.
func (d *Daemon) completeArrived(a *model.Attachment, at sandbox.Sandbox) {
	n, ok := model.State{Networks: d.desired.Networks}.Network(a.Network)
	seen, err := d.cfg.Host.DescribeSandbox(at.Path)
	if !ok || err != nil || a.Interface != "" {
		return // settle reports the error
	}
	a.Interface = d.freeInterface(at.Ref, seen)
	var notes []string
	if err := d.defaultRoute(a, n, *a, false, seen, &notes); err != nil {
		d.cfg.Log.Warn("choose the default route", "attachment", a.Name, "error", err)
	}
	for _, note := range notes {
		d.cfg.Log.Info("sandbox runs for the first time", "attachment", a.Name, "note", note)
	}
}

// existing returns the attachment that the request changes, if there is one: the one
// with the requested name or, without a name, the one with the same sandbox, network
// and interface.
func (d *Daemon) existing(a model.Attachment) (model.Attachment, bool, error) {
	for _, have := range d.desired.Attachments {
		sameSandbox := have.Ref == a.Ref && have.Network == a.Network
		switch {
		case a.Name == "" && sameSandbox && (a.Interface == "" || a.Interface == have.Interface):
			return have, true, nil
		case a.Name == have.Name && sameSandbox:
			return have, true, nil
		case a.Name == have.Name:
			return have, false, api.Faultf(api.Conflict,
				"attachment %s already exists for %s on network %s: detach it first, or choose another --name", a.Name, have.Ref, have.Network)
		}
	}
	return model.Attachment{}, false, nil
}

// freeName derives a name from the sandbox's name, and adds the network's name if that
// is taken.
func (d *Daemon) freeName(at sandbox.Sandbox, n model.Network) string {
	base := at.Name[strings.LastIndexByte(at.Name, '/')+1:]
	if at.Kind == sandbox.Process {
		base = "pid-" + base
	}
	name := base
	for i := 1; ; i++ {
		if _, taken := d.desired.Attachment(name); !taken {
			return name
		}
		if name = base + "-" + n.Name; i > 1 {
			name = fmt.Sprintf("%s-%s-%d", base, n.Name, i)
		}
	}
}

// freeInterface returns the first of eth0, eth1 … that the sandbox does not have.
func (d *Daemon) freeInterface(ref string, seen kernel.Sandbox) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("eth%d", i)
		if slices.Contains(seen.Links, name) || slices.ContainsFunc(d.desired.Attachments, func(a model.Attachment) bool {
			return a.Ref == ref && a.Interface == name
		}) {
			continue
		}
		return name
	}
}

// sortAddresses moves prefixes that are in a subnet of the network to the addresses,
// and returns the other prefixes separately.
func sortAddresses(n model.Network, addrs []netip.Addr, prefixes []netip.Prefix) ([]netip.Addr, []netip.Prefix, error) {
	var foreign []netip.Prefix
	for _, p := range prefixes {
		if slices.ContainsFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Masked() == p.Masked() }) {
			addrs = append(slices.Clip(addrs), p.Addr())
		} else {
			foreign = append(foreign, p)
		}
	}
	if len(addrs) > 0 && len(n.Subnets) == 0 {
		return nil, nil, api.Faultf(api.Invalid,
			"address %s: network %s has no subnets: add the prefix length, e.g. %s/24", addrs[0], n.Name, addrs[0])
	}
	return addrs, foreign, nil
}

// defaultRoute keeps an existing default route of the sandbox, unless the request sets
// a gateway, which is a conflict.
func (d *Daemon) defaultRoute(a *model.Attachment, n model.Network, have model.Attachment, known bool, seen kernel.Sandbox, notes *[]string) error {
	if a.NoDefault || n.Internal || known && !have.NoDefault {
		return nil // no default route is wanted, or the existing one is Fairlead's
	}
	has := false
	for _, v4 := range []bool{true, false} {
		_, asked := a.Gateway(v4)
		there := seen.Default4
		if !v4 {
			there = seen.Default6
		}
		if asked && there {
			return api.Faultf(api.Conflict,
				"gateway of %s: the sandbox already has a default route: remove it, or omit --gateway and add the routes that you need with --route", a.Ref)
		}
		has = has || there && mayHave(*a, n, v4)
	}
	if has {
		a.NoDefault = true
		*notes = append(*notes, fmt.Sprintf("%s keeps its default route", a.Ref))
	}
	return nil
}

// mayHave reports whether the attachment may get an address of the family.
func mayHave(a model.Attachment, n model.Network, v4 bool) bool {
	_, has := a.Address(v4)
	return has || a.DHCP || len(a.Addresses) == 0 && slices.ContainsFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Addr().Is4() == v4 })
}
