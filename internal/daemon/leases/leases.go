// Package leases runs the DHCP clients of attachments: one from the time at which the attachment runs until it is
// stopped or its sandbox ends. It sets no addresses, and knows nothing of the desired state: the daemon applies what is
// leased.
//
// Nothing here waits for a server while the daemon's mutex is locked. A client that is stopped releases its lease, for
// which it needs the link of its attachment. So a step that removes attachments stops their clients, changes nothing,
// and returns the ReleasingError of Stop. Repeat waits, and calls the step again.
package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/dhcp"
	"fairlead/internal/lock"
	"fairlead/internal/model"
)

// DHCP obtains and renews a lease, as dhcp.Run does.
type DHCP func(ctx context.Context, c dhcp.Config, notify func(dhcp.Lease)) error

const (
	// leaseLimit is how long DHCP servers may take to answer an attach.
	leaseLimit = time.Minute
	// releaseLimit is how long a client may take to release its lease.
	releaseLimit = 5 * time.Second
)

// Config contains what Clients need.
type Config struct {
	Run DHCP
	// Apply applies the lease of an attachment; the zero Lease means that the last one has ended. It applies nothing if
	// current returns false while the daemon's mutex is locked: the client was stopped.
	Apply func(name string, l model.Lease, current func() bool) error
	// Changed is called when a problem begins or ends.
	Changed func()
	Log     *slog.Logger
}

// Clients are the DHCP clients of a host. The methods may be called concurrently.
type Clients struct {
	cfg Config

	// mu protects the fields below. It is locked after the daemon's mutex.
	mu sync.Mutex
	// running has the clients by the names of their attachments. ending has those that are stopped: their attachments
	// get no other client before Repeat returns.
	running, ending map[string]*client
	// lapsed has the addresses of leases that ended while no client ran.
	lapsed map[string]netip.Addr
}

// client is the DHCP client of an attachment.
type client struct {
	name   string
	cancel context.CancelFunc
	// leased is closed when the first lease was applied or failed to apply, missing when no server has given a first
	// lease, and done when the client has ended. unapplied, refused and ended are the errors.
	leased, missing, done     chan struct{}
	unapplied, refused, ended error
	// problem is why there is no confirmed lease; empty if there is one. Clients.mu protects it.
	problem string
}

// New returns Clients of which none runs.
func New(cfg Config) *Clients {
	return &Clients{cfg: cfg, running: map[string]*client{}, ending: map[string]*client{},
		lapsed: map[string]netip.Addr{}}
}

// Adopt returns attachments of an earlier process of the daemon, or of a network that was unavailable, without the leases
// that have ended while no client ran. Their clients ask for the same addresses again.
func (cs *Clients) Adopt(all []model.Attachment) []model.Attachment {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	now := alarm.SinceBoot()
	all = slices.Clone(all)
	for i, a := range all {
		if a.Lease.Ends == 0 || now < a.Lease.Ends || cs.running[a.Name] != nil {
			continue
		}
		if len(a.Lease.Prefixes) > 0 {
			cs.lapsed[a.Name] = a.Lease.Prefixes[0].Addr()
		}
		cs.cfg.Log.Warn("the lease has ended", "attachment", a.Name, "addresses", a.Lease.Prefixes)
		all[i].Lease = model.Lease{}
	}
	return all
}

// Start starts the client of an attachment, unless it runs or is being stopped. It does not wait. The client goes on
// asking if no server answers. id identifies the client in the network; if empty, the MAC address does.
func (cs *Clients) Start(a model.Attachment, id string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.running[a.Name] != nil || cs.ending[a.Name] != nil {
		return
	}
	// The end of the daemon does not end it, because that would release the lease.
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{name: a.Name, cancel: cancel, leased: make(chan struct{}), missing: make(chan struct{}),
		done: make(chan struct{})}
	config := dhcp.Config{Netns: a.Sandbox, Link: a.InterfaceName(), Hostname: a.Name, ClientID: id,
		Failed: func(err error) { cs.refused(c, err) }, Last: cs.lapsed[a.Name]}
	delete(cs.lapsed, a.Name)
	if len(a.Lease.Prefixes) > 0 { // e.g. of the previous daemon process
		config.Last, config.Ends = a.Lease.Prefixes[0].Addr(), toClock(a.Lease.Ends)
		close(c.leased) // the attachment has it
	}
	cs.running[a.Name] = c
	leases := make(chan dhcp.Lease)
	go func() {
		defer close(c.done)
		c.ended = cs.cfg.Run(ctx, config, func(l dhcp.Lease) {
			select {
			case leases <- l:
			case <-ctx.Done(): // the daemon applies nothing any more
			}
		})
	}()
	go func() {
		for {
			select {
			case l := <-leases:
				cs.apply(c, l)
			case <-c.done:
				cs.forget(c)
				return
			}
		}
	}()
}

// Gone returns the names of the attachments that are gone, lease nothing any more or need another client when the
// attachments become others.
func Gone(before, next []model.Attachment) (names []string) {
	for _, a := range before {
		i := slices.IndexFunc(next, func(o model.Attachment) bool { return o.Name == a.Name })
		if i < 0 || a.DHCP && (next[i].Ref != a.Ref || !sameClient(a, next[i])) {
			names = append(names, a.Name)
		}
	}
	return names
}

// Restored returns an attachment as it is when it replaces another one again: without its lease if the other one's client
// has replaced its client, which has released the lease.
func Restored(had, other model.Attachment) model.Attachment {
	if !sameClient(had, other) {
		had.Lease = model.Lease{}
	}
	return had
}

// sameClient reports whether the client of an attachment is also that of the attachment when it has changed.
func sameClient(before, now model.Attachment) bool {
	return before.DHCP == now.DHCP && before.Sandbox == now.Sandbox && before.MAC == now.MAC &&
		before.InterfaceName() == now.InterfaceName()
}

// current reports whether a client runs.
func (cs *Clients) current(c *client) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.running[c.name] == c
}

// goesOn ends the problems of clients.
const goesOn = "; the daemon goes on asking"

// refused notes that no server has given or confirmed the first lease.
func (cs *Clients) refused(c *client, err error) {
	cs.cfg.Log.Warn("lease addresses", "attachment", c.name, "error", err)
	cs.mu.Lock()
	c.problem, c.refused = "its DHCP lease is not confirmed: "+err.Error()+goesOn, err
	close(c.missing)
	cs.mu.Unlock()
	cs.cfg.Changed()
}

// apply passes a lease on.
func (cs *Clients) apply(c *client, l dhcp.Lease) {
	err := cs.cfg.Apply(c.name, model.Lease{Prefixes: l.Prefixes, Gateways: l.Gateways, Routes: l.Routes,
		Ends: toBoot(l.Expires)}, func() bool { return cs.current(c) })
	problem := ""
	if l.IsZero() {
		problem = "its DHCP lease has ended, and no server has given another one" + goesOn
	}
	cs.mu.Lock()
	changed := c.problem != problem
	c.problem = problem
	if c.unapplied = err; !closed(c.leased) {
		close(c.leased)
	}
	cs.mu.Unlock()
	if changed {
		cs.cfg.Changed()
	}
}

// toBoot returns the end of a lease as in model.Lease, in whole seconds, and toClock as in dhcp.Lease.
func toBoot(ends time.Time) time.Duration {
	if ends.IsZero() {
		return 0
	}
	return (alarm.SinceBoot() + ends.Sub(alarm.Now())).Truncate(time.Second)
}

func toClock(ends time.Duration) time.Time {
	if ends == 0 {
		return time.Time{}
	}
	return alarm.Now().Add(ends - alarm.SinceBoot())
}

// forget forgets a client that has ended by itself.
func (cs *Clients) forget(c *client) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.running[c.name] != c {
		return
	}
	delete(cs.running, c.name)
	if c.ended != nil && !errors.Is(c.ended, dhcp.ErrGone) {
		cs.cfg.Log.Error("renew lease", "attachment", c.name, "error", c.ended)
	}
}

// Problem returns why an attachment has no confirmed lease, or an empty text.
func (cs *Clients) Problem(name string) string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.running[name]; c != nil {
		return c.problem
	}
	return ""
}

// Await waits for the first lease of an attachment, at most for a minute. It returns the error of applying it, or why
// there is none. The client goes on.
func (cs *Clients) Await(ctx context.Context, name string) error {
	lock.Outside("a DHCP server")
	cs.mu.Lock()
	c := cs.running[name]
	cs.mu.Unlock()
	if c == nil {
		return fmt.Errorf("lease addresses for %s: %w", name, dhcp.ErrGone)
	}
	ctx, cancel := context.WithTimeout(ctx, leaseLimit)
	defer cancel()
	select {
	case <-c.leased:
	case <-c.missing:
	case <-c.done:
	case <-ctx.Done():
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case closed(c.leased): // also if the lease of an earlier process is not confirmed
		return c.unapplied
	case closed(c.missing):
		return fmt.Errorf("lease addresses for %s: %w", name, c.refused)
	case closed(c.done):
		return fmt.Errorf("lease addresses for %s: %w", name, c.ended)
	}
	return fmt.Errorf("lease addresses for %s: %w", name, ctx.Err())
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Drop ends the client of a sandbox that has ended. It releases nothing any more.
func (cs *Clients) Drop(name string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.running[name]; c != nil {
		delete(cs.running, name)
		c.cancel()
	}
}
