package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Listed is a container as its engine lists it.
type Listed struct {
	ID      string
	Name    string
	Image   string
	Running bool
	// HostNetwork says that it is in the host's network namespace.
	HostNetwork bool
	// Networks are in no order.
	Networks []OnNetwork
	Ports    []ListedPort
}

// OnNetwork is a container's connection to a network of the engine.
type OnNetwork struct {
	Name      string
	Addresses []netip.Addr
}

// ListedPort is a port that the engine has published.
type ListedPort struct {
	// Addr and Host are the address and the port on the host.
	Addr  netip.Addr
	Proto string
	Host  uint16
	// Private is the port in the container.
	Private uint16
}

// containerJSON is an entry of an engine's list of containers.
type containerJSON struct {
	ID         string `json:"Id"`
	Names      []string
	Image      string
	State      string
	HostConfig struct{ NetworkMode string }
	Ports      []struct {
		IP                      string
		PrivatePort, PublicPort uint16
		Type                    string
	}
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress, GlobalIPv6Address string }
	}
}

// Containers returns the running containers of all engines that answer. It
// returns ErrNoEngine if no engine runs.
func (f Finder) Containers(ctx context.Context) ([]Listed, error) {
	var all []Listed
	var errs []error
	missing := 0
	for _, socket := range f.Engines {
		list, err := list(ctx, socket)
		if errors.Is(err, ErrNoEngine) {
			missing++
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ask the container engine at %s: %w", socket, err))
		}
		all = append(all, list...)
	}
	if missing == len(f.Engines) {
		return nil, ErrNoEngine
	}
	return all, errors.Join(errs...)
}

func list(ctx context.Context, socket string) ([]Listed, error) {
	answer, err := get(ctx, socket, "/containers/json")
	if notRunning(err) {
		return nil, ErrNoEngine
	}
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, refusal(answer)
	}
	var found []containerJSON
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	var all []Listed
	for _, c := range found {
		all = append(all, c.listed())
	}
	return all, nil
}

func (c containerJSON) listed() Listed {
	out := Listed{ID: c.ID[:min(shortID, len(c.ID))], Image: c.Image, Running: c.State == "running",
		HostNetwork: c.HostConfig.NetworkMode == "host"}
	if len(c.Names) > 0 {
		out.Name = strings.TrimPrefix(c.Names[0], "/")
	}
	for name, n := range c.NetworkSettings.Networks {
		on := OnNetwork{Name: name}
		for _, text := range []string{n.IPAddress, n.GlobalIPv6Address} {
			if a, err := netip.ParseAddr(text); err == nil {
				on.Addresses = append(on.Addresses, a)
			}
		}
		out.Networks = append(out.Networks, on)
	}
	for _, p := range c.Ports {
		if p.PublicPort == 0 {
			continue
		}
		addr, _ := netip.ParseAddr(p.IP)
		out.Ports = append(out.Ports, ListedPort{addr, p.Type, p.PublicPort, p.PrivatePort})
	}
	return out
}
