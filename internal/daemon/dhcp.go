package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/dhcp"
	"fairlead/internal/model"
)

// DHCP holds a lease as dhcp.Run does.
type DHCP func(ctx context.Context, c dhcp.Config, notify func(dhcp.Lease)) error

// leasePatience is how long servers may take to answer.
const leasePatience = time.Minute

// client holds the lease of an attachment.
type client struct {
	cancel context.CancelFunc
	// leased is closed when the first lease is applied, or was not, and done
	// when the client has ended; the errors say why.
	leased, done chan struct{}
	unapplied    error
	ended        error
}

// startClients starts those that lack.
func (d *Daemon) startClients() {
	for _, a := range d.desired.Attachments {
		if a.DHCP && a.Sandbox != "" && d.clients[a.Name] == nil && d.problems[a.Name] == "" {
			d.startClient(a)
		}
	}
}

// startClient does not end it with the daemon: whoever stops gives no lease
// back, as nothing else.
func (d *Daemon) startClient(a model.Attachment) {
	config := dhcp.Config{Netns: a.Sandbox, Link: a.InterfaceName(), Hostname: a.Name}
	if n, _ := (model.State{Networks: d.desired.Networks}).Network(a.Network); n.Driver == model.DriverIPvlan {
		config.ClientID = a.Name // its links share a MAC address
	}
	if len(a.Lease.Prefixes) > 0 {
		config.Last = a.Lease.Prefixes[0].Addr() // of the daemon before us
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{cancel: cancel, leased: make(chan struct{}), done: make(chan struct{})}
	d.clients[a.Name] = c
	events := make(chan dhcp.Lease)
	go func() {
		defer close(c.done)
		c.ended = d.cfg.DHCP(ctx, config, func(l dhcp.Lease) {
			// Whoever stops the client may hold our lock and wait for it.
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
				d.renew(a.Name, c, model.Lease{Prefixes: l.Prefixes, Gateways: l.Gateways, Routes: l.Routes})
			case <-c.done:
				d.lost(a.Name, c)
				return
			}
		}
	}()
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
		if c.unapplied = d.settle(with(d.desired, a)); c.unapplied != nil {
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

// lost notes that a client has ended by itself.
func (d *Daemon) lost(name string, c *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clients[name] != c {
		return
	}
	delete(d.clients, name)
	if c.ended != nil && !errors.Is(c.ended, dhcp.ErrGone) {
		d.cfg.Log.Error("hold lease", "attachment", name, "error", c.ended)
	}
}

// awaitLease starts the client of an attachment, if it has none, and waits for
// its first lease.
func (d *Daemon) awaitLease(ctx context.Context, name string) error {
	d.mu.Lock()
	d.startClients()
	c := d.clients[name]
	d.mu.Unlock()
	if c == nil {
		return fault(Failed, "lease addresses for %s: its sandbox ended meanwhile", name)
	}
	ctx, cancel := context.WithTimeout(ctx, leasePatience)
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

// stopClient ends a client, which gives its lease back.
func (d *Daemon) stopClient(name string) {
	c := d.clients[name]
	if c == nil {
		return
	}
	delete(d.clients, name)
	c.cancel()
	<-c.done
	if c.ended != nil && !errors.Is(c.ended, context.Canceled) {
		d.cfg.Log.Warn("give a lease back", "attachment", name, "error", c.ended)
	}
}

func (d *Daemon) stopClients() {
	for name := range d.clients {
		d.stopClient(name)
	}
}

// stopDead ends the clients of sandboxes that are gone: nothing can be given
// back from there.
func (d *Daemon) stopDead(dead map[string]bool) {
	for _, a := range d.desired.Attachments {
		if c := d.clients[a.Name]; c != nil && dead[a.Ref] {
			delete(d.clients, a.Name)
			c.cancel()
		}
	}
}

// leaseMAC makes a hardware address by which servers know an attachment: the
// one that follows from addresses would come with the lease.
func leaseMAC() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // it never fails
	return fmt.Sprintf("02:f1:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}
