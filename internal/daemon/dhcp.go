package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/dhcp"
	"fairlead/internal/model"
)

// DHCP obtains and renews a lease, as dhcp.Run does.
type DHCP func(ctx context.Context, c dhcp.Config, notify func(dhcp.Lease)) error

// leaseTimeout is how long DHCP servers may take to answer.
const leaseTimeout = time.Minute

// client is the DHCP client of an attachment.
type client struct {
	cancel context.CancelFunc
	// leased is closed when the first lease was applied or failed to apply, and done
	// when the client has ended. unapplied and ended are the errors.
	leased, done chan struct{}
	unapplied    error
	ended        error
}

// startClients starts the clients that do not run.
func (d *Daemon) startClients() {
	for _, a := range d.desired.Attachments {
		if a.DHCP && a.Sandbox != "" && d.clients[a.Name] == nil && d.problems[a.Name] == "" {
			d.startClient(a)
		}
	}
}

// startClient starts the client of an attachment. The end of the daemon does not end
// it, because that would release the lease.
func (d *Daemon) startClient(a model.Attachment) {
	config := dhcp.Config{Netns: a.Sandbox, Link: a.InterfaceName(), Hostname: a.Name}
	if n, _ := (model.State{Networks: d.desired.Networks}).Network(a.Network); n.Traits().ParentMAC {
		config.ClientID = a.Name // its links share a MAC address
	}
	if len(a.Lease.Prefixes) > 0 {
		config.Last = a.Lease.Prefixes[0].Addr() // e.g. of the previous daemon process
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{cancel: cancel, leased: make(chan struct{}), done: make(chan struct{})}
	d.clients[a.Name] = c
	events := make(chan dhcp.Lease)
	go func() {
		defer close(c.done)
		c.ended = d.cfg.DHCP(ctx, config, func(l dhcp.Lease) {
			// stopClient may hold d.mu while it waits for this goroutine.
			select {
			case events <- l:
			case <-ctx.Done():
			}
		})
	}()
	go func() {
		for {
			select {
			case l := <-events:
				d.applyLease(a.Name, c, model.Lease{Prefixes: l.Prefixes, Gateways: l.Gateways, Routes: l.Routes})
			case <-c.done:
				d.clientEnded(a.Name, c)
				return
			}
		}
	}()
}

// applyLease applies a client's lease.
func (d *Daemon) applyLease(name string, c *client, l model.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.desired.Attachment(name)
	if !ok || d.clients[name] != c {
		return
	}
	if !a.Lease.Equal(l) {
		a.Lease = l
		if c.unapplied = d.settle(d.desired.WithAttachment(a)); c.unapplied != nil {
			d.cfg.Log.Error("apply lease", "attachment", name, "error", c.unapplied)
		} else {
			d.cfg.Log.Info("lease", "attachment", name, "addresses", l.Prefixes)
		}
	}
	select {
	case <-c.leased:
	default:
		close(c.leased)
	}
}

// clientEnded handles a client that has ended by itself.
func (d *Daemon) clientEnded(name string, c *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clients[name] != c {
		return
	}
	delete(d.clients, name)
	if c.ended != nil && !errors.Is(c.ended, dhcp.ErrGone) {
		d.cfg.Log.Error("renew lease", "attachment", name, "error", c.ended)
	}
}

// awaitLease starts the client of an attachment, if it does not run, and waits for its
// first lease.
func (d *Daemon) awaitLease(ctx context.Context, name string) error {
	d.mu.Lock()
	d.startClients()
	c := d.clients[name]
	d.mu.Unlock()
	if c == nil {
		return api.Faultf(api.Failed, "lease addresses for %s: its sandbox ended meanwhile", name)
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	select {
	case <-c.leased:
		d.mu.Lock()
		defer d.mu.Unlock()
		return c.unapplied
	case <-c.done:
		return fmt.Errorf("lease addresses for %s: %w", name, c.ended)
	case <-ctx.Done():
		return fmt.Errorf("lease addresses for %s: %w", name, ctx.Err())
	}
}

// stopClient ends a client, which releases its lease.
func (d *Daemon) stopClient(name string) {
	c := d.clients[name]
	if c == nil {
		return
	}
	delete(d.clients, name)
	c.cancel()
	<-c.done
	if c.ended != nil && !errors.Is(c.ended, context.Canceled) {
		d.cfg.Log.Warn("release lease", "attachment", name, "error", c.ended)
	}
}

func (d *Daemon) stopClients() {
	for name := range d.clients {
		d.stopClient(name)
	}
}

// stopDead ends the clients of sandboxes that have ended. It does not wait for them:
// they cannot release their leases any more.
func (d *Daemon) stopDead(dead map[string]bool) {
	for _, a := range d.desired.Attachments {
		if c := d.clients[a.Name]; c != nil && dead[a.Ref] {
			delete(d.clients, a.Name)
			c.cancel()
		}
	}
}
