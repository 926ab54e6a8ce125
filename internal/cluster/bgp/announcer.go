package bgp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
)

// addressLife is how long an address stays on the loopback link without this process; it is set again
// three times as often.
const addressLife = time.Minute

// Host adds addresses to the loopback link of this host. The kernel removes them after their lifetime.
type Host interface {
	// Keep adds an address, or sets its lifetime again.
	Keep(a netip.Addr, life time.Duration) error
	Drop(a netip.Addr) error
	// Kept returns the addresses that were added, also by an earlier process.
	Kept() ([]netip.Addr, error)
	// Near returns the link on whose subnet an address is, or "": there, two hosts would answer for it.
	Near(a netip.Addr) (string, error)
}

// Config contains what an Announcer needs.
type Config struct {
	Host Host
	// Store commits transactions of the node.
	Store kv.Committer
	Log   *slog.Logger
}

// Announcer announces the node's addresses. It is a member.Consumer. Its methods may be called
// concurrently.
type Announcer struct {
	cfg    Config
	latest member.Latest

	// mu protects the fields below, and what the host has.
	mu       sync.Mutex
	wanted   wanted
	speaker  *speaker
	problems []string
	// released is true after Release, and ended after Run: nothing is announced any more.
	released, ended bool
}

var (
	_ member.Consumer = (*Announcer)(nil)
	_ member.Releaser = (*Announcer)(nil)
)

// New returns an Announcer that announces nothing.
func New(cfg Config) *Announcer { return &Announcer{cfg: cfg} }

// Update announces what a snapshot wants, and returns the problems.
func (n *Announcer) Update(_ context.Context, self member.Self, u kv.Update) []string {
	w, problems := wantedOf(u.Snapshot, self.Node)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return nil
	}
	changed := !reflect.DeepEqual(w, n.wanted)
	n.latest.Replace(self, u.Snapshot)
	n.wanted = w
	if !n.released && changed || len(n.problems) > 0 {
		n.refresh()
	}
	return append(problems, n.problems...)
}

// Release withdraws all addresses and removes them, until Resume. The Member calls it with each update while
// the node is not in the cluster.
func (n *Announcer) Release(context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if first := !n.released; !n.ended && (first || len(n.problems) > 0) {
		n.released = true
		n.refresh()
	}
}

// Resume announces again what the newest snapshot wants.
func (n *Announcer) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.released = false
	if !n.ended {
		n.refresh()
	}
}

// Leave withdraws all addresses and removes them.
func (n *Announcer) Leave() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latest.Replace(member.Self{}, nil)
	n.wanted, n.released = wanted{}, false
	return errors.Join(n.apply(wanted{})...)
}

// Run keeps the addresses on the host until ctx ends. It then withdraws them; they stay on the host for
// their lifetime, because the next process may continue.
func (n *Announcer) Run(ctx context.Context) {
	again := time.NewTicker(addressLife / 3)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			n.mu.Lock()
			defer n.mu.Unlock()
			n.ended = true
			n.silence()
			return
		case <-again.C:
			n.mu.Lock()
			if !n.released && len(n.wanted.addresses) > 0 || len(n.problems) > 0 {
				n.refresh()
			}
			n.mu.Unlock()
		}
	}
}

// refresh applies what is wanted, and remembers the problems.
func (n *Announcer) refresh() {
	before, now := n.problems, n.wanted
	if n.released {
		now = wanted{}
	}
	n.problems = nil
	for _, err := range n.apply(now) {
		n.problems = append(n.problems, err.Error())
		if !slices.Contains(before, err.Error()) {
			n.cfg.Log.Warn("announce by BGP", "error", err)
		}
	}
}

// sessions returns the sessions with the routers.
func (n *Announcer) sessions() ([]session, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.speaker == nil {
		return nil, nil
	}
	return n.speaker.sessions()
}

// apply makes the host and the speaker what is wanted: addresses are there before they are announced, and
// withdrawn before they go.
func (n *Announcer) apply(w wanted) (problems []error) {
	have, err := n.cfg.Host.Kept()
	if err != nil {
		return []error{err}
	}
	announced, problems := n.keep(w.addresses)
	if err := n.announce(w, announced); err != nil {
		problems = append(problems, err)
	}
	for _, a := range have {
		if !slices.Contains(announced, a) {
			if err := n.cfg.Host.Drop(a); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return problems
}

// keep adds the addresses to the host, and returns those that it has then.
func (n *Announcer) keep(addresses []netip.Addr) (kept []netip.Addr, problems []error) {
	for _, a := range addresses {
		link, err := n.cfg.Host.Near(a)
		if err == nil && link != "" {
			err = &nearError{a, link}
		}
		if err == nil {
			err = n.cfg.Host.Keep(a, addressLife)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		kept = append(kept, a)
	}
	return kept, problems
}

// announce starts and stops the speaker, and gives it what to announce.
func (n *Announcer) announce(w wanted, addresses []netip.Addr) error {
	if len(w.routers) == 0 {
		n.silence()
		return nil
	}
	if n.speaker == nil {
		s, err := startSpeaker(w.id, w.routers[0].LocalAS, n.cfg.Log)
		if err != nil {
			return err
		}
		n.speaker = s
	}
	return n.speaker.set(w.routers, addresses)
}

// silence ends the sessions. The routers then have no routes to this node.
func (n *Announcer) silence() {
	if n.speaker != nil {
		n.speaker.stop()
		n.speaker = nil
	}
}

// nearError is the error of an address that is on the subnet of a link.
type nearError struct {
	address netip.Addr
	link    string
}

func (e *nearError) Error() string {
	return "address " + e.address.String() + " is on the subnet of link " + e.link + ", where every node would " +
		"answer for it: announce an address of no link's subnet by BGP"
}
