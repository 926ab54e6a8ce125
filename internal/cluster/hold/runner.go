// Package hold carries out on this host what package vip decides: for each virtual address of
// the cluster it sends the transactions and the questions of the protocol, opens and closes
// the address in the kernel, and announces it.
//
// Theory of operation. Each address has a vip.Machine. Snapshots, answers of etcd and of other
// nodes, changes of links, and one timer call the machines; what they return is carried out at
// once, in order. All of that happens under one lock, and nothing under it waits for the
// network.
//
//	snapshots, links, timer ──► Machine ──► fence, address, announcements (package virtual)
//	answers ◄── etcd, other nodes ◄── transactions, questions
//
// A node has the fence of each address of the cluster, also while it is only a candidate: its
// deadline is 0 then. So the host does not answer for an address that another program has
// added to it. A node that cannot have an address says why (State.Barred).
//
// Restarts. When the daemon ends, addresses stay open until their deadlines, at most for the
// hold time. The next process continues with these deadlines if the record still names this
// node, also while etcd does not answer: a file has what it must know (vip.Memory). If the
// daemon is away for longer, another node takes the address. `cluster leave` releases the
// addresses at once, and an end of the daemon that removes everything closes them.
package hold

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/vip"
	"fairlead/internal/kernel/virtual"
)

// restartAfter is how long the host is not able to hold addresses after the fence could not
// be loaded.
const restartAfter = time.Minute

// Peers are the other nodes of the cluster.
type Peers interface {
	// Peer asks a node a question, and decodes its answer.
	Peer(ctx context.Context, node, kind string, question, into any) error
}

// Config contains what a Runner needs.
type Config struct {
	Host *virtual.Handle
	// Store commits transactions of the node.
	Store kv.Committer
	Peers Peers
	// Memory is the path of a file for the next process. It is lost with the boot at the latest.
	Memory string
	// Note records an event.
	Note func(api.Event)
	Log  *slog.Logger
}

// Runner carries out the protocol of all virtual addresses on this host. It is a
// member.Consumer. Its methods may be called concurrently.
type Runner struct {
	cfg   Config
	timer *timer
	// ready is closed when the links of the host are known.
	ready chan struct{}
	tasks sync.WaitGroup

	// mu protects the fields below, and the addresses.
	mu sync.Mutex
	// life is the context of Run; nil while it does not run.
	life     context.Context
	self     member.Self
	snapshot kv.Snapshot
	members  vip.Members
	known    map[netip.Addr]*address
	// due has the known addresses, but for touched ones, whose state may have changed since the last settle.
	due     queue
	touched map[*address]bool
	// troubled are the known addresses with a problem.
	troubled map[*address]bool
	// moved is true if a link can be without addresses since the last settle.
	moved  bool
	asking map[string]*questions
	// promises are those for addresses that are not known yet.
	promises map[netip.Addr]vip.Request
	// unable is why this host can have no address; restart is when to try again.
	unable  string
	restart time.Duration
	// unwatched is why the state of the links is not known; empty if it is.
	unwatched string
	fenced    bool
	// stopping is true after Release. missed has the updates since then.
	stopping bool
	missed   kv.Update
	// released is closed and replaced when an address may have been released.
	released chan struct{}
}

var _ member.Consumer = (*Runner)(nil)

// New returns a Runner without a snapshot. Run must run before it does anything.
func New(cfg Config) (*Runner, error) {
	t, err := newTimer()
	if err != nil {
		return nil, err
	}
	return &Runner{cfg: cfg, timer: t, ready: make(chan struct{}), known: map[netip.Addr]*address{},
		touched: map[*address]bool{}, troubled: map[*address]bool{}, asking: map[string]*questions{},
		promises: map[netip.Addr]vip.Request{}, released: make(chan struct{})}, nil
}

// Run watches the links and the time until ctx ends. Addresses stay open until their
// deadlines.
func (r *Runner) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	r.life = ctx
	r.mu.Unlock()
	r.tasks.Go(func() {
		for r.timer.wait() {
			r.tick()
		}
	})
	r.watch(ctx, r.cfg.Host.Watch)
	r.mu.Lock()
	r.life = nil
	r.mu.Unlock()
	cancel()
	r.timer.close()
	r.tasks.Wait()
}

// Update implements member.Consumer.
func (r *Runner) Update(ctx context.Context, self member.Self, u kv.Update) (problems []string) {
	select {
	case <-r.ready:
	case <-ctx.Done():
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life == nil {
		return nil
	}
	r.self = self
	if r.stopping {
		r.missed.Snapshot, r.missed.Changed = u.Snapshot, append(r.missed.Changed, u.Changed...)
		return nil
	}
	r.take(u)
	return r.problems()
}

// take takes over a snapshot.
func (r *Runner) take(u kv.Update) {
	started := r.start(u)
	before := r.snapshot
	r.snapshot = u.Snapshot
	if before != nil && u.Snapshot.Revision() < before.Revision() {
		r.restored(before)
	}
	all := r.members.Update(u)
	changed := map[netip.Addr]bool{}
	for _, key := range u.Changed {
		if a, ok := parseKey(key); ok {
			if changed[a] = true; r.known[a] == nil && held(u.Snapshot, key) {
				r.add(a, 0)
			}
		}
	}
	concerned := r.chosen(changed)
	if all || started {
		concerned = r.sorted()
	}
	for _, a := range concerned {
		r.learn(a, all)
		r.see(a)
	}
	r.settle()
}

// chosen returns those of the addresses that are known, in a fixed order.
func (r *Runner) chosen(addrs map[netip.Addr]bool) (all []*address) {
	for _, addr := range slices.SortedFunc(maps.Keys(addrs), netip.Addr.Compare) {
		if a := r.known[addr]; a != nil {
			all = append(all, a)
		}
	}
	return all
}

// restored shows the machines that the next snapshot is older than this one, also those whose
// record has not changed for long.
func (r *Runner) restored(before kv.Snapshot) {
	for _, a := range r.sorted() {
		a.view.Revision = before.Revision()
		r.do(a, a.machine.See(virtual.Now(), a.view))
		a.entry = kv.Entry{}
	}
	r.members = vip.Members{}
}

// parseKey returns the address of a key; false if the key is of something else.
func parseKey(key string) (netip.Addr, bool) {
	text, ok := strings.CutPrefix(key, record.Addresses)
	if !ok {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(text)
	return a, err == nil && a.String() == text && a.Zone() == "" && !a.Is4In6()
}

// held reports whether one candidate at a time has the address of a key, not all of them.
func held(s kv.Snapshot, key string) bool {
	rec, exists, _ := record.Get[record.Address](s, key)
	return !exists || rec.Announce == ""
}

// start loads the fence if the cluster has addresses, or if an earlier process has left
// some, and continues with their deadlines. It reports whether it has loaded the fence: then the host can have addresses
// that it could not have before.
func (r *Runner) start(u kv.Update) (loaded bool) {
	if r.fenced || virtual.Now() < r.restart {
		return false
	}
	needed := r.snapshot == nil && r.cfg.Host.Left()
	for e := range u.Snapshot.Under(record.Addresses) {
		_, ok := parseKey(e.Key)
		needed = needed || ok && held(u.Snapshot, e.Key)
	}
	if !needed {
		return false
	}
	var standing map[netip.Addr]time.Duration
	err := r.cfg.Host.Start()
	if err == nil {
		standing, err = r.cfg.Host.Deadlines()
	}
	if err != nil {
		r.unable, r.restart = err.Error(), virtual.Now()+restartAfter
		r.cfg.Log.Error("virtual addresses", "error", err)
		return false
	}
	r.unable, r.fenced = "", true
	remembered := r.recall()
	for a, deadline := range standing {
		if r.known[a] == nil {
			r.add(a, deadline).machine.Remember(remembered[a])
		}
	}
	for _, a := range r.known { // of the time without the fence
		r.fence(a)
	}
	return true
}

// tick does what is due.
func (r *Runner) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life == nil {
		return
	}
	for _, a := range r.due.take(virtual.Now()) {
		r.touch(a)
		if now := virtual.Now(); a.machine.Next() <= now {
			r.do(a, a.machine.Tick(now))
		}
		r.refresh(a)
		r.announce(a)
	}
	r.settle()
}

// touch notes that the state of an address may change: something can be due at another time, or the address can be
// forgotten. The holder of mu calls settle after the change.
func (r *Runner) touch(a *address) { r.touched[a] = true }

// settle forgets the touched addresses that the cluster does not have any more, and sets the timer to the next thing
// that is due. It costs nothing for the other addresses, of which there can be hundreds.
func (r *Runner) settle() {
	for a := range r.touched {
		if r.known[a.addr] != a || r.forgotten(a) {
			r.due.remove(a)
			delete(r.troubled, a)
			continue
		}
		r.due.set(a, a.next())
		if a.view.Unable == "" && a.conflict.At.IsZero() {
			delete(r.troubled, a)
		} else {
			r.troubled[a] = true
		}
	}
	clear(r.touched)
	r.leaveLinks()
	if err := r.timer.set(r.due.first()); err != nil && r.life != nil {
		r.cfg.Log.Error("virtual addresses", "error", err)
	}
}

// forgotten forgets an address that the cluster does not have any more and this host has closed, and reports whether it
// has.
func (r *Runner) forgotten(a *address) bool {
	if r.snapshot == nil || a.entry.Value != nil || !a.machine.Released() || a.open || a.unclosed {
		return false
	}
	delete(r.known, a.addr)
	r.moved = true
	if r.fenced {
		r.warn(r.cfg.Host.Forget(a.addr))
	}
	return true
}

// leaveLinks removes the fence from links that have no address any more, and as a whole with the last address.
func (r *Runner) leaveLinks() {
	if !r.fenced || r.snapshot == nil {
		return
	}
	if len(r.known) == 0 {
		r.fenced = false
		r.warn(r.cfg.Host.Remove())
		return
	}
	if !r.moved {
		return
	}
	r.moved = false
	links := map[int]bool{}
	for _, a := range r.known {
		links[a.on.Index] = true
	}
	r.warn(r.cfg.Host.Detach(links))
}

func (r *Runner) warn(err error) {
	if err != nil {
		r.cfg.Log.Warn("virtual addresses", "error", err)
	}
}

// sorted returns the addresses in a fixed order.
func (r *Runner) sorted() []*address { return sortedByAddress(maps.Values(r.known)) }

func sortedByAddress(all iter.Seq[*address]) []*address {
	return slices.SortedFunc(all, func(a, b *address) int { return a.addr.Compare(b.addr) })
}

// Release gives up all addresses, and waits until the other nodes know it or ctx ends. The
// Runner takes no address afterwards until Resume.
func (r *Runner) Release(ctx context.Context) {
	r.mu.Lock()
	r.stopping = true
	for _, a := range r.sorted() {
		r.do(a, a.machine.Stop(virtual.Now()))
	}
	r.settle()
	r.mu.Unlock()
	for {
		r.mu.Lock()
		done, changed := true, r.released
		for _, a := range r.known {
			done = done && a.machine.Released()
		}
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Resume lets the node take addresses again after Release.
func (r *Runner) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	missed := r.missed
	r.stopping, r.missed = false, kv.Update{}
	if missed.Snapshot == nil {
		missed.Snapshot = r.snapshot
	}
	for _, a := range r.sorted() {
		missed.Changed = append(missed.Changed, r.add(a.addr, 0).key)
	}
	if missed.Snapshot != nil {
		r.take(missed)
	}
}

// Leave implements member.Consumer: it closes all addresses, and removes the fence.
func (r *Runner) Leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leave()
}

func (r *Runner) leave() error {
	var errs []error
	if !r.fenced && r.cfg.Host.Left() {
		errs = append(errs, r.cfg.Host.Start())
		r.fenced = errs[0] == nil
	}
	for _, a := range r.known {
		errs = append(errs, r.shut(a, "the host leaves the cluster"))
	}
	if r.fenced {
		standing, err := r.cfg.Host.Deadlines()
		errs = append(errs, err)
		for a := range standing {
			errs = append(errs, r.cfg.Host.Close(a, virtual.Link{}))
		}
		errs = append(errs, r.cfg.Host.Remove())
	}
	r.forget()
	r.known, r.snapshot, r.members = map[netip.Addr]*address{}, nil, vip.Members{}
	r.due, r.moved = nil, false
	clear(r.touched)
	clear(r.troubled)
	r.fenced, r.stopping, r.missed, r.unable, r.restart = false, false, kv.Update{}, "", 0
	return errors.Join(errs...)
}
