package spec

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Sandbox is the sandbox of an attachment, and what it contains if it runs.
type Sandbox struct {
	// Sandbox has no Path if the sandbox does not run.
	sandbox.Sandbox
	// Namespace, Links, Default4 and Default6 are as in inspect.Sandbox.
	Namespace          string
	Links              []string
	Default4, Default6 bool
}

// Composed is a desired state with a requested attachment.
type Composed struct {
	model.Desired
	Attachment model.Attachment
	Notes      []string
}

// Compose adds the requested attachment to a desired state, and fills in the values
// that the request leaves empty. Values that depend on the contents of a sandbox stay
// empty until it runs. Returns a Fault with code NotFound if there is no such network,
// Conflict if another object contradicts the request, and Invalid if it has a mistake.
func Compose(w model.Desired, req api.AttachRequest, at Sandbox) (Composed, error) {
	c := Composed{Desired: w}
	n, private, err := networkOf(w, req)
	if err != nil {
		return c, err
	}
	if private && !slices.ContainsFunc(w.Networks, func(o model.Network) bool { return o.Name == n.Name }) {
		c.Networks = append(slices.Clip(w.Networks), n)
	}
	c.Attachment = model.Attachment{Endpoint: req.Endpoint, Ref: at.Ref, Namespace: at.Namespace,
		Keep: req.Keep || n.Traits().MovesDevice && at.Kind != sandbox.Process, DHCP: req.DHCP, Private: private,
		Origin: req.Origin}
	a := &c.Attachment
	if req.Keep && at.Kind == sandbox.Process {
		return c, api.Faultf(api.Invalid,
			"keep: a process does not come back, and another process may get its PID: name the sandbox by its container, its network namespace or its path")
	}
	a.Network, a.Sandbox = n.Name, at.Path
	if err := complete(w, a, n, at, &c.Notes); err != nil {
		return c, err
	}
	have, known := w.Attachment(a.Name)
	if !known || len(a.Addresses) > 0 && !slices.Equal(a.Addresses, have.Addresses) {
		if err := n.Lease(); err != nil {
			return c, api.Faultf(api.Conflict, "attach %s: %w", at.Ref, err)
		}
	}
	alone := model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{withSandbox(*a)}}
	if err := alone.Validate(); err != nil {
		return c, &api.Fault{Code: api.Invalid, Err: fmt.Errorf("attach %s: %w", at.Ref, err)}
	}
	c.Desired = c.WithAttachment(*a)
	return c, nil
}

// complete fills in the values that the attachment leaves empty.
func complete(w model.Desired, a *model.Attachment, n model.Network, at Sandbox, notes *[]string) error {
	have, known, err := existing(w, *a)
	if err != nil {
		return err
	}
	if a.Name == "" {
		a.Name = freeName(w, at, n)
	}
	if a.Addresses, a.Prefixes, err = sortAddresses(n, a.Addresses, a.Prefixes); err != nil {
		return err
	}
	switch {
	case known:
		a.Name = have.Name
		inherit(a, have, at.Path == "")
	case a.Interface == "" && at.Path != "":
		a.Interface = FreeInterface(w, at)
	}
	if a.DHCP && a.MAC == "" && !n.Traits().MovesDevice && !n.Traits().ParentMAC {
		a.MAC = leaseMAC()
	}
	return defaultRoute(a, n, have, known, at, notes)
}

// Arrive fills in the values of an attachment that was created before its sandbox ran,
// and returns notes for the user. Returns an error if the sandbox's default route
// contradicts a requested gateway.
func Arrive(w model.Desired, a *model.Attachment, at Sandbox) (notes []string, err error) {
	n, ok := w.Network(a.Network)
	if !ok || a.Interface != "" {
		return nil, nil // the engine reports a missing network
	}
	a.Interface = FreeInterface(w, at)
	return notes, defaultRoute(a, n, *a, false, at, &notes)
}

// Readopt fills in the values of an attachment whose link its sandbox has lost, so that
// it can be created again. Returns the same error as Arrive.
func Readopt(w model.Desired, a *model.Attachment, at Sandbox) error {
	n, _ := w.Network(a.Network)
	a.HostInterface, a.Namespace, a.Interface = "", at.Namespace, FreeInterface(w, at)
	var notes []string
	return defaultRoute(a, n, *a, false, at, &notes)
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
	if a.DHCP && have.DHCP && have.Namespace == a.Namespace && a.MAC == have.MAC && a.Interface == have.Interface {
		a.Lease = have.Lease // another client releases it
	}
	if absent && len(a.Gateways) == 0 {
		a.NoDefault = have.NoDefault
	}
}

// networkOf returns the network that the request names, or the private network of a
// device.
func networkOf(w model.Desired, req api.AttachRequest) (n model.Network, private bool, err error) {
	if req.Device == "" {
		n, ok := w.Network(req.Network)
		if !ok {
			return n, false, api.Faultf(api.NotFound,
				"there is no network %q: create it with `fairlead network create`, or list them with `fairlead network ls`", req.Network)
		}
		private := slices.ContainsFunc(w.Attachments,
			func(a model.Attachment) bool { return a.Private && a.Network == n.Name })
		return n, private, nil
	}
	name := deviceNetwork(req.Device, req.PKey)
	n = model.Network{Name: name, Driver: model.DriverDevice, Parent: req.Device, PKey: req.PKey}
	if have, ok := w.Network(name); ok && !have.Equal(n) {
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

// existing returns the attachment that the request changes, if there is one: the one
// with the requested name or, without a name, the one with the same sandbox, network
// and interface.
func existing(w model.Desired, a model.Attachment) (model.Attachment, bool, error) {
	for _, have := range w.Attachments {
		sameSandbox := have.Ref == a.Ref && have.Network == a.Network
		switch {
		case a.Name == "" && sameSandbox && (a.Interface == "" || a.Interface == have.Interface):
			return have, true, nil
		case a.Name == have.Name && sameSandbox:
			return have, true, nil
		case a.Name == have.Name:
			return have, false, api.Faultf(api.Conflict,
				"attachment %s already exists for %s on network %s: detach it first, or choose another --name", a.Name,
				have.Ref, have.Network)
		}
	}
	return model.Attachment{}, false, nil
}

// freeName derives a name from the sandbox's name, and adds the network's name if that
// is taken.
func freeName(w model.Desired, at Sandbox, n model.Network) string {
	base := at.Name[strings.LastIndexByte(at.Name, '/')+1:]
	if at.Kind == sandbox.Process {
		base = "pid-" + base
	}
	name := base
	for i := 1; ; i++ {
		if _, taken := w.Attachment(name); !taken {
			return name
		}
		if name = base + "-" + n.Name; i > 1 {
			name = fmt.Sprintf("%s-%s-%d", base, n.Name, i)
		}
	}
}

// FreeInterface returns the first of eth0, eth1 … that the sandbox does not have.
func FreeInterface(w model.Desired, at Sandbox) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("eth%d", i)
		if slices.Contains(at.Links, name) || slices.ContainsFunc(w.Attachments, func(a model.Attachment) bool {
			return a.Ref == at.Ref && a.Interface == name
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
func defaultRoute(a *model.Attachment, n model.Network, have model.Attachment, known bool, at Sandbox,
	notes *[]string) error {
	if a.NoDefault || n.Internal || known && !have.NoDefault {
		return nil // no default route is wanted, or the existing one is Fairlead's
	}
	has := false
	for _, v4 := range []bool{true, false} {
		_, asked := a.Gateway(v4)
		there := at.Default4
		if !v4 {
			there = at.Default6
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
	return has || a.DHCP || len(a.Addresses) == 0 &&
		slices.ContainsFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Addr().Is4() == v4 })
}

// leaseMAC generates a MAC address by which DHCP servers recognise an attachment. An
// address that is derived from the IP address is not known before the lease.
func leaseMAC() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // it never fails
	return fmt.Sprintf("02:f1:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}
