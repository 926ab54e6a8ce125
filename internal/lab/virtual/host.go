package virtual

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/topology/lan"
)

// Host is a host that can have the virtual address.
type Host struct {
	Name string
	Addr netip.Addr
	// Said is what the keeper's program has printed.
	Said program.Output
	// Process is the keeper's program.
	Process *child.Process

	world  *World
	host   *lan.Host
	mac    string
	server *failover.Server
}

// Link is the name of the host's link to the LAN.
func (*Host) Link() string { return lan.Link }

// Rank is the position of the host among those that can have the address; the first
// has 0.
func (h *Host) Rank() int { return int(h.Addr.As4()[3]) - firstHost }

// start starts the host's real server and the keeper's program.
func (h *Host) start(ctx context.Context) (err error) {
	at := h.host.Place()
	if groups := h.world.Groups; groups != nil {
		at.Cgroup = groups.Server
	}
	if h.server, err = failover.StartServer(ctx, h.Name, Port, at); err != nil {
		return err
	}
	at = h.host.Place()
	if groups := h.world.Groups; groups != nil {
		at.Cgroup = groups.Proxy
	}
	if h.Process, err = h.world.Keeper.Keep(ctx, h, at); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}

// Kill ends the keeper's program as kill -9 does. The host keeps running.
func (h *Host) Kill() { _ = h.Process.Kill() } // its exit status says only that it was killed

// Give makes the host give the address to another host.
func (h *Host) Give(ctx context.Context) error { return h.world.Keeper.Give(ctx, h) }

// Cut drops all IP packets between this host and the other ones that can have the
// address, and what they share, in both directions. Clients still reach the host.
func (h *Host) Cut() error {
	others := []string{sharedAddr.String()}
	for _, o := range h.world.Hosts {
		if o != h {
			others = append(others, o.Addr.String())
		}
	}
	// Multicast is how hosts announce themselves to all others.
	rules := fmt.Sprintf(`table ip partition {
	chain in { type filter hook input priority raw; ip saddr { %[1]s } drop; }
	chain out { type filter hook output priority raw; ip daddr { %[1]s, 224.0.0.0/4 } drop; }
}`, strings.Join(others, ", "))
	_, err := program.Shell(h.host.Do, "nft '"+rules+"'")
	if err != nil {
		return fmt.Errorf("cut off host %s: %w", h.Name, err)
	}
	return nil
}

// close ends the host's processes.
func (h *Host) close() {
	if h.Process != nil {
		h.Kill()
	}
	if h.server != nil {
		h.server.Kill()
	}
}

// macOf returns the MAC address of the host's link.
func macOf(h *lan.Host) (mac string, err error) {
	err = h.Do(func() error {
		link, err := net.InterfaceByName(lan.Link)
		if err == nil {
			mac = link.HardwareAddr.String()
		}
		return err
	})
	return mac, err
}
