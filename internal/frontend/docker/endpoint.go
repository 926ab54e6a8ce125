package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/daemon"
	"fairlead/internal/engine"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// own is what an endpoint has of its own. It ends with the boot.
type own struct {
	// Via replaces the network's.
	Via model.Via `json:"via,omitempty"`
	// Interface is the name in the container.
	Interface string `json:"interface,omitempty"`
}

func ownKey(endpoint string) string { return "docker endpoint " + endpoint }

// createEndpoint reserves an endpoint with the addresses that Docker has
// leased. What Docker leaves open, and no more, is answered.
func (d *Driver) createEndpoint(ctx context.Context, r endpointRequest) (any, error) {
	a, err := readEndpoint(r)
	if err != nil {
		return nil, err
	}
	a.Engine = sandbox.ProcessID(d.cfg.Caller(ctx))
	if err := d.dropStale(ctx, a); err != nil {
		return nil, err
	}
	// Docker may yet be killed before it notes the endpoint: nothing is made.
	o := own{Via: model.Via(r.Options.text("via")), Interface: r.Options.text(keyInterface)}
	if d.lends(a.Network) {
		a.HostInterface, a.Interface = "", o.Interface
	}
	in, err := d.cfg.Daemon.Reserve(a)
	if err != nil {
		return nil, err
	}
	if o != (own{}) {
		if err := d.cfg.Passing.Put(map[string]any{ownKey(a.Name): o}); err != nil {
			return nil, err
		}
	}
	var answer endpointResponse
	if r.Interface.MacAddress == "" {
		answer.Interface.MacAddress = in.MAC
	}
	return answer, nil
}

// lends reports whether a network hands over whole devices: there is no link for
// Docker to take then, and the daemon puts the device into the sandbox.
func (d *Driver) lends(network string) bool { return d.network(network).Driver == model.DriverDevice }

func (d *Driver) network(name string) model.Network {
	n, _ := model.State{Networks: d.cfg.Daemon.Networks()}.Network(name)
	return n
}

func readEndpoint(r endpointRequest) (a model.Attachment, err error) {
	a.Origin = model.FromDocker
	if a.Name, err = EndpointName(r.EndpointID); err != nil {
		return a, err
	}
	if a.HostInterface, err = linkName(r.EndpointID); err != nil {
		return a, err
	}
	if a.Network, err = NetworkName(r.NetworkID); err != nil {
		return a, err
	}
	a.Ref, a.MAC = "docker:"+r.EndpointID, r.Interface.MacAddress
	for _, text := range []string{r.Interface.Address, r.Interface.AddressIPv6} {
		addr, err := address(text)
		if err != nil {
			return a, fmt.Errorf("address %.64q: %w", text, err)
		}
		if addr.IsValid() && !addr.IsUnspecified() {
			a.Addresses = append(a.Addresses, addr)
		}
	}
	return a, nil
}

// dropStale takes endpoints away whose addresses Docker gives away again: it
// has no such endpoints any more.
func (d *Driver) dropStale(ctx context.Context, a model.Attachment) error {
	for _, old := range d.cfg.Daemon.Attachments() {
		if old.Origin != model.FromDocker || old.Network != a.Network || old.Name == a.Name ||
			!slices.ContainsFunc(a.Addresses, func(addr netip.Addr) bool { return slices.Contains(old.Addresses, addr) }) {
			continue
		}
		d.cfg.Log.Warn("take away an endpoint that Docker has forgotten", "attachment", old.Name)
		if err := d.remove(ctx, old.Name); err != nil {
			return err
		}
	}
	return nil
}

// remove takes an endpoint away, with all that is noted of it.
func (d *Driver) remove(ctx context.Context, name string) error {
	if _, err := d.cfg.Daemon.Detach(ctx, daemon.DetachRequest{Name: name}); err != nil {
		return err
	}
	return d.cfg.Passing.Put(map[string]any{ownKey(name): nil})
}

func (d *Driver) deleteEndpoint(ctx context.Context, r endpointRequest) (any, error) {
	name, err := EndpointName(r.EndpointID)
	if err != nil {
		return nil, err
	}
	return nothing{}, d.remove(ctx, name)
}

// join makes the endpoint's link, for Docker to take.
func (d *Driver) join(_ context.Context, r endpointRequest) (any, error) {
	name, err := EndpointName(r.EndpointID)
	if err != nil {
		return nil, err
	}
	e, in, err := d.cfg.Daemon.Join(name, r.SandboxKey)
	if err != nil {
		return nil, err
	}
	if e.HostInterface == "" {
		return joinResponse{DisableGatewayService: true}, nil
	}
	answer := config(in)
	answer.InterfaceName = interfaceName{SrcName: e.HostInterface, DstPrefix: "eth", DstName: d.own(name).Interface}
	if prefix := d.settings(e.Network).Prefix; prefix != "" {
		answer.InterfaceName.DstPrefix = prefix
	}
	if n := d.network(e.Network); n.Internal || answer.Gateway != "" {
		return answer, nil // Docker will say whether ports are to be published
	}
	// Up to 27, Docker speaks of ports only to who has an IPv4 gateway.
	if err := d.publish(name, r.Options); err != nil {
		return nil, errors.Join(err, d.cfg.Daemon.Leave(name))
	}
	return answer, nil
}

// config says what Docker is to give the link. Without a default route it
// would attach a bridge of its own, and publish the ports there.
func config(in engine.SandboxConfig) (r joinResponse) {
	r.DisableGatewayService = true
	for _, g := range in.Gateways {
		r.DisableGatewayService = false
		if g.Is4() {
			r.Gateway = g.String()
		} else {
			r.GatewayIPv6 = g.String()
		}
	}
	for _, route := range in.Routes {
		s := staticRoute{Destination: route.To.String(), RouteType: routeConnected}
		if route.Via.IsValid() {
			s.RouteType, s.NextHop = routeNextHop, route.Via.String()
		}
		r.StaticRoutes = append(r.StaticRoutes, s)
	}
	// A route by a next hop is refused until that can be reached.
	slices.SortStableFunc(r.StaticRoutes, func(a, b staticRoute) int { return b.RouteType - a.RouteType })
	return r
}

// own returns what is noted of an endpoint.
func (d *Driver) own(name string) (o own) {
	if raw, ok := d.cfg.Passing.All()[ownKey(name)]; ok {
		if err := json.Unmarshal(raw, &o); err != nil {
			d.cfg.Log.Error("read what an endpoint has of its own", "endpoint", name, "error", err)
		}
	}
	return o
}

// leave takes the link away, and the ports, of which newer engines may not have
// spoken.
func (d *Driver) leave(_ context.Context, r endpointRequest) (any, error) {
	name, err := EndpointName(r.EndpointID)
	if err != nil {
		return nil, err
	}
	return nothing{}, d.cfg.Daemon.Leave(name)
}

// program publishes the endpoint's ports: it is its container's gateway now.
func (d *Driver) program(_ context.Context, r endpointRequest) (any, error) {
	name, err := EndpointName(r.EndpointID)
	if err != nil {
		return nil, err
	}
	return nothing{}, d.publish(name, r.Options)
}

func (d *Driver) revoke(_ context.Context, r endpointRequest) (any, error) {
	name, err := EndpointName(r.EndpointID)
	if err != nil {
		return nil, err
	}
	return nothing{}, d.cfg.Daemon.Expose(name, nil)
}
