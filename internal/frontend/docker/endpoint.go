package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/engine"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// endpointSettings apply to one endpoint. They end with the boot.
type endpointSettings struct {
	// Via replaces the network's publish mode.
	Via model.Via `json:"via,omitempty"`
	// Interface is the interface's name in the container.
	Interface string `json:"interface,omitempty"`
}

func endpointSettingsKey(endpoint string) string { return "docker endpoint " + endpoint }

// createEndpoint reserves an endpoint with the addresses that Docker has leased.
// The response contains a MAC address only if Docker gave none: Docker refuses
// other values.
func (d *Driver) createEndpoint(ctx context.Context, r endpointRequest) (any, error) {
	a, err := readEndpoint(r)
	if err != nil {
		return nil, err
	}
	a.Engine = sandbox.ProcessID(d.cfg.Caller(ctx))
	a.Network = d.networkOf(a.Network)
	if err := d.dropStale(a); err != nil {
		return nil, err
	}
	// Docker can be killed before it saves the endpoint. Therefore no link is
	// created yet.
	o := endpointSettings{Via: model.Via(r.Options.text("via")), Interface: r.Options.text(keyInterface)}
	if d.movesDevices(a.Network) {
		a.HostInterface, a.Interface = "", o.Interface
	}
	in, err := d.cfg.Daemon.Reserve(a)
	if err != nil {
		return nil, err
	}
	if o != (endpointSettings{}) {
		if err := d.cfg.Passing.Put(map[string]any{endpointSettingsKey(a.Name): o}); err != nil {
			return nil, err
		}
	}
	var answer endpointResponse
	if r.Interface.MacAddress == "" {
		answer.Interface.MacAddress = in.MAC
	}
	return answer, nil
}

// movesDevices reports whether the network's driver moves whole devices into
// sandboxes. The daemon does that itself, and Docker gets no link to move.
func (d *Driver) movesDevices(network string) bool {
	return d.network(network).Traits().MovesDevice
}

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
	a.Ref, a.MAC = sandbox.EndpointRef+r.EndpointID, r.Interface.MacAddress
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

// dropStale removes endpoints whose addresses Docker has leased again: Docker has
// forgotten these endpoints.
func (d *Driver) dropStale(a model.Attachment) error {
	for _, old := range d.cfg.Daemon.Attachments() {
		if old.Origin != model.FromDocker || old.Network != a.Network || old.Name == a.Name ||
			!slices.ContainsFunc(a.Addresses, func(addr netip.Addr) bool {
				return slices.Contains(old.Addresses,
					addr)
			}) {
			continue
		}
		d.cfg.Log.Warn("remove an endpoint that Docker has forgotten", "attachment", old.Name)
		if err := d.remove(old.Name); err != nil {
			return err
		}
	}
	return nil
}

// remove removes an endpoint and its settings.
func (d *Driver) remove(name string) error {
	if err := d.cfg.Daemon.Remove(name); err != nil {
		return err
	}
	return d.cfg.Passing.Put(map[string]any{endpointSettingsKey(name): nil})
}

func (d *Driver) deleteEndpoint(_ context.Context, r endpointRequest) (any, error) {
	name, err := EndpointName(r.EndpointID)
	if err != nil {
		return nil, err
	}
	return nothing{}, d.remove(name)
}

// join creates the endpoint's link. Docker moves it into the sandbox.
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
	answer.InterfaceName = interfaceName{SrcName: e.HostInterface, DstPrefix: "eth",
		DstName: d.endpointSettings(name).Interface}
	if prefix := d.settings(e.Network).Prefix; prefix != "" {
		answer.InterfaceName.DstPrefix = prefix
	}
	if n := d.network(e.Network); n.Internal || answer.Gateway != "" {
		return answer, nil // Docker calls ProgramExternalConnectivity to publish ports
	}
	// Up to version 27, Docker makes that call only for endpoints with an IPv4
	// gateway.
	if err := d.publish(name, r.Options); err != nil {
		return nil, errors.Join(err, d.cfg.Daemon.Leave(name))
	}
	return answer, nil
}

// config returns the link's gateways and routes for Docker. DisableGatewayService
// is set if there is no default route: without it Docker would also connect the
// container to its own bridge, and publish the ports there.
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
	// The kernel refuses a route whose next hop has no route yet: connected routes
	// come first.
	slices.SortStableFunc(r.StaticRoutes, func(a, b staticRoute) int { return b.RouteType - a.RouteType })
	return r
}

// endpointSettings returns the stored settings of an endpoint.
func (d *Driver) endpointSettings(name string) (o endpointSettings) {
	if raw, ok := d.cfg.Passing.All()[endpointSettingsKey(name)]; ok {
		if err := json.Unmarshal(raw, &o); err != nil {
			d.cfg.Log.Error("read an endpoint's settings", "endpoint", name, "error", err)
		}
	}
	return o
}

// leave removes the link and the publishes. Newer engines do not always revoke the
// publishes before.
func (d *Driver) leave(_ context.Context, r endpointRequest) (any, error) {
	name, err := EndpointName(r.EndpointID)
	if err != nil {
		return nil, err
	}
	return nothing{}, d.cfg.Daemon.Leave(name)
}

// program publishes the endpoint's ports, because Docker made it its container's
// gateway.
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
