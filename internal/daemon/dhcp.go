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

// clients runs the DHCP clients of attachments.
type clients struct {
	*state
	// settle applies a desired state with a new lease. It is called with the lock held.
	settle func(model.Desired) error
	// running has the clients by the names of their attachments.
	running map[string]*client
}

func newClients(s *state, settle func(model.Desired) error) *clients {
	return &clients{state: s, settle: settle, running: map[string]*client{}}
}

// startAll starts the clients that do not run.
func (cs *clients) startAll() {
	for _, a := range cs.desired.Attachments {
		if a.DHCP && a.Sandbox != "" && cs.running[a.Name] == nil && cs.problems[a.Name] == "" {
			cs.start(a)
		}
	}
}

// start starts the client of an attachment. The end of the daemon does not end
// it, because that would release the lease.
func (cs *clients) start(a model.Attachment) {
	config := dhcp.Config{Netns: a.Sandbox, Link: a.InterfaceName(), Hostname: a.Name}
	if n, _ := (model.State{Networks: cs.desired.Networks}).Network(a.Network); n.Traits().ParentMAC {
		config.ClientID = a.Name // its links share a MAC address
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{cancel: cancel, leased: make(chan struct{}), done: make(chan struct{})}
	if len(a.Lease.Prefixes) > 0 { // e.g. of the previous daemon process
		config.Last = a.Lease.Prefixes[0].Addr()
		config.Failed = func(err error) { cs.cfg.Log.Warn("confirm lease", "attachment", a.Name, "error", err) }
		close(c.leased) // the attachment has it
	}
	cs.running[a.Name] = c
	events := make(chan dhcp.Lease)
	go func() {
		defer close(c.done)
		c.ended = cs.cfg.DHCP(ctx, config, func(l dhcp.Lease) {
			// stop may hold cs.mu while it waits for this goroutine.
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
				cs.apply(a.Name, c, model.Lease{Prefixes: l.Prefixes, Gateways: l.Gateways, Routes: l.Routes})
			case <-c.done:
				cs.ended(a.Name, c)
				return
			}
		}
	}()
}

// apply applies a client's lease.
func (cs *clients) apply(name string, c *client, l model.Lease) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	a, ok := cs.desired.Attachment(name)
	if !ok || cs.running[name] != c {
		return
	}
	if !a.Lease.Equal(l) {
		a.Lease = l
		if c.unapplied = cs.settle(cs.desired.WithAttachment(a)); c.unapplied != nil {
			cs.cfg.Log.Error("apply lease", "attachment", name, "error", c.unapplied)
		} else {
			cs.cfg.Log.Info("lease", "attachment", name, "addresses", l.Prefixes)
		}
	}
	select {
	case <-c.leased:
	default:
		close(c.leased)
	}
}

// ended handles a client that has ended by itself.
func (cs *clients) ended(name string, c *client) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.running[name] != c {
		return
	}
	delete(cs.running, name)
	if c.ended != nil && !errors.Is(c.ended, dhcp.ErrGone) {
		cs.cfg.Log.Error("renew lease", "attachment", name, "error", c.ended)
	}
}

// await starts the client of an attachment, if it does not run, and waits for its
// first lease.
func (cs *clients) await(ctx context.Context, name string) error {
	cs.mu.Lock()
	cs.startAll()
	c := cs.running[name]
	cs.mu.Unlock()
	if c == nil {
		return api.Faultf(api.Failed, "lease addresses for %s: its sandbox ended meanwhile", name)
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	select {
	case <-c.leased:
		cs.mu.Lock()
		defer cs.mu.Unlock()
		return c.unapplied
	case <-c.done:
		return fmt.Errorf("lease addresses for %s: %w", name, c.ended)
	case <-ctx.Done():
		return fmt.Errorf("lease addresses for %s: %w", name, ctx.Err())
	}
}

// stop ends a client, which releases its lease.
func (cs *clients) stop(name string) {
	c := cs.running[name]
	if c == nil {
		return
	}
	delete(cs.running, name)
	c.cancel()
	<-c.done
	if c.ended != nil && !errors.Is(c.ended, context.Canceled) {
		cs.cfg.Log.Warn("release lease", "attachment", name, "error", c.ended)
	}
}

func (cs *clients) stopAll() {
	for name := range cs.running {
		cs.stop(name)
	}
}

// stopDead ends the clients of sandboxes that have ended. It does not wait for them:
// they cannot release their leases any more.
func (cs *clients) stopDead(dead map[string]bool) {
	for _, a := range cs.desired.Attachments {
		if c := cs.running[a.Name]; c != nil && dead[a.Ref] {
			delete(cs.running, a.Name)
			c.cancel()
		}
	}
}
