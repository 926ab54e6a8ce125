package daemon

import (
	"context"
	"fmt"
	"time"

	"fairlead/internal/model"
)

// DHCP gets addresses from a server of a network.
type DHCP interface {
	// Start runs a client on a link of the sandbox at path until Stop.
	Start(path, link string) (DHCPClient, error)
}

// DHCPClient is a client that runs.
type DHCPClient interface {
	// Leases gets every lease that the client gets, and the zero one when it has
	// lost it. It is closed by Stop.
	Leases() <-chan model.Lease
	// Stop gives the lease back while the sandbox is there to do so.
	Stop(context.Context) error
}

// leasePatience is how long a server may take to answer.
const leasePatience = 15 * time.Second

// client is the DHCP client of an attachment.
type client struct {
	DHCPClient
	// leased is closed when the first lease is applied.
	leased chan struct{}
	// failed is why it was not.
	failed error
}

// startClients starts those that lack.
func (d *Daemon) startClients() {
	for _, a := range d.wishes.Attachments {
		if !a.DHCP || a.Sandbox == "" || d.clients[a.Name] != nil || d.problems[a.Name] != "" {
			continue
		}
		c, err := d.cfg.DHCP.Start(a.Sandbox, a.InterfaceName())
		if err != nil {
			d.problem(a.Name, err)
			continue
		}
		run := &client{DHCPClient: c, leased: make(chan struct{})}
		d.clients[a.Name] = run
		go func() {
			for l := range c.Leases() {
				d.renew(a.Name, run, l)
			}
		}()
	}
}

// renew applies what a client was told.
func (d *Daemon) renew(name string, c *client, l model.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.attachment(name)
	if !ok || d.clients[name] != c {
		return
	}
	if !a.Lease.Equal(l) {
		a.Lease = l
		if err := d.settle(with(d.wishes, a)); err != nil {
			d.cfg.Log.Error("apply lease", "attachment", name, "error", err)
			c.failed = err
		} else {
			d.cfg.Log.Info("lease", "attachment", name, "addresses", l.Prefixes)
		}
	}
	select {
	case <-c.leased:
	default:
		if !l.IsZero() {
			close(c.leased)
		}
	}
}

// awaitLease starts the client of an attachment and waits for its first lease.
func (d *Daemon) awaitLease(ctx context.Context, a model.Attachment) error {
	d.mu.Lock()
	d.startClients()
	c := d.clients[a.Name]
	problem := d.problems[a.Name]
	d.mu.Unlock()
	if c == nil {
		return fault(Failed, "lease addresses for %s: %s", a.Name, problem)
	}
	ctx, cancel := context.WithTimeout(ctx, leasePatience)
	defer cancel()
	select {
	case <-c.leased:
		d.mu.Lock()
		defer d.mu.Unlock()
		return c.failed
	case <-ctx.Done():
		return fault(Failed, "lease addresses for %s: no DHCP server answered on network %s: give it an --address, or see that a server is there", a.Name, a.Network)
	}
}

// stopClient ends a client and gives its lease back.
func (d *Daemon) stopClient(ctx context.Context, name string) {
	c := d.clients[name]
	if c == nil {
		return
	}
	delete(d.clients, name)
	if err := c.Stop(ctx); err != nil {
		d.cfg.Log.Error("give a lease back", "attachment", name, "error", err)
	}
}

func (d *Daemon) stopClients(ctx context.Context) {
	for name := range d.clients {
		d.stopClient(ctx, name)
	}
}

// stopDead ends the clients of sandboxes that are gone: they cannot give
// anything back.
func (d *Daemon) stopDead(dead map[string]bool) {
	ended, cancel := context.WithCancel(d.life)
	cancel()
	for _, a := range d.wishes.Attachments {
		if c := d.clients[a.Name]; c != nil && dead[a.Ref] {
			delete(d.clients, a.Name)
			if err := c.Stop(ended); err != nil {
				d.cfg.Log.Debug("end a DHCP client", "attachment", a.Name, "error", fmt.Sprint(err))
			}
		}
	}
}
