package rig

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/program"
)

// daemonBalancer is a whole Fairlead daemon on the server host, controlled with
// the same commands as users run.
type daemonBalancer struct {
	*Trial
	daemon failover.Daemon
	said   Reports
}

// startDaemonBalancer starts the daemon, makes it attach the sandboxes and balance
// over them, and follows its events.
func startDaemonBalancer(ctx context.Context, t *Trial) (*daemonBalancer, error) {
	b := &daemonBalancer{Trial: t, said: NewReports()}
	if err := b.daemon.Start(ctx, b.Rig.Place(b.World.Server(), ProxyGroup)); err != nil {
		return b, fmt.Errorf("start the daemon: %w: %s", err, b.Log())
	}
	sandboxes, err := b.sandboxes()
	if err != nil {
		return b, err
	}
	// The first check decides at once, so the servers' endpoints are created
	// before it.
	for _, spec := range []map[string]any{sandboxes, b.balanced(sandboxes)} {
		if err := b.daemon.Apply(ctx, spec); err != nil {
			return b, err
		}
	}
	return b, b.follow(ctx)
}

// sandboxes declares the sandboxes, with paths that other processes can open.
func (b *daemonBalancer) sandboxes() (map[string]any, error) {
	at := b.Rig.Addresses()
	var attachments []map[string]any
	for _, name := range b.Names {
		box, err := b.World.Sandbox(name)
		if err != nil {
			return nil, err
		}
		attachments = append(attachments, map[string]any{
			"name": name, "sandbox": program.ForOthers(box), "network": Network, "address": at.Reals[name].String(),
		})
	}
	p := b.Rig.Path
	return map[string]any{
		"networks": map[string]any{Network: map[string]any{"driver": p.Driver, "subnet": at.Subnet.String(),
			"mtu": p.MTU}},
		"attachments": attachments,
	}, nil
}

// balanced adds a service over the sandboxes to the declaration.
func (b *daemonBalancer) balanced(sandboxes map[string]any) map[string]any {
	p := b.Rig.Path
	var servers []string
	for _, name := range b.Names {
		servers = append(servers, b.at(name))
	}
	check := map[string]any{"type": "tcp", "interval": b.Interval.String(), "fall": Fall, "rise": Rise}
	if p.Passive {
		check["passive"] = true
	}
	spec := maps.Clone(sandboxes)
	spec["services"] = map[string]any{Service: map[string]any{
		"address": b.Rig.Addresses().Virtual.String(), "port": LoadPort, "plane": p.Plane, "drain": "10s",
		"check": check, "reals": servers,
	}}
	return spec
}

// at returns the address and port of a real server, as in commands and events.
func (b *daemonBalancer) at(name string) string {
	return netip.AddrPortFrom(b.Rig.Addresses().Reals[name], LoadPort).String()
}

// follow reads the daemon's events.
func (b *daemonBalancer) follow(ctx context.Context) error {
	return b.daemon.Follow(ctx, func(e api.Event) {
		for name := range b.Rig.Addresses().Reals {
			if e.Object == fmt.Sprintf("service %s real %s", Service, b.at(name)) {
				b.said.Send(Report{e.Time, name, e.Kind == api.RealIsUp})
			}
		}
	}, func() { close(b.said) })
}

func (b *daemonBalancer) Target() netip.AddrPort {
	return netip.AddrPortFrom(b.Rig.Addresses().Virtual, LoadPort)
}

func (b *daemonBalancer) Reports() <-chan Report { return b.said }

func (b *daemonBalancer) Log() string { return b.daemon.Log() }

func (b *daemonBalancer) Drain(ctx context.Context, server string) error {
	return b.daemon.Do(ctx, nil, "service", "drain", Service, b.at(server), "--wait")
}

func (b *daemonBalancer) Enable(ctx context.Context, server string) error {
	return b.daemon.Do(ctx, nil, "service", "enable", Service, b.at(server))
}

func (b *daemonBalancer) Close() error { return b.daemon.Close(Patience) }
