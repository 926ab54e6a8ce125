package hold

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/vip"
	"fairlead/internal/kernel/virtual"
)

const (
	// lifeBeyond is by how much the lifetime of an address is longer than the hold time.
	lifeBeyond = 2 * time.Second
	// keepEvery is how often the lifetime is set again.
	keepEvery = time.Second
	// failedFor is how long a node does not take an address that it could not open.
	failedFor = 10 * time.Second
	// conflictEvery is how long a conflict is shown, and how often there is an event.
	conflictEvery = time.Minute
)

// never is a time at which nothing is due.
const never = time.Duration(1<<63 - 1)

// address is a virtual address on this host.
type address struct {
	addr    netip.Addr
	key     string
	machine *vip.Machine
	view    vip.View
	// entry has the record of the newest snapshot, and rec its content if it can be read.
	entry kv.Entry
	rec   record.Address
	// on is the link that has the address, or shall have it.
	on virtual.Link
	// open says that the address is on the link. deadline is that of the fence.
	open     bool
	deadline time.Duration
	// memory is what is stored for the next process.
	memory *vip.Memory
	// unclosed says that a close has failed: nothing is sent until it succeeds.
	unclosed bool
	// kept is when the lifetime of the address was set.
	kept time.Duration
	// failed is why the address could not be opened, until retry.
	failed string
	retry  time.Duration
	// announced is how often the address was announced since it was opened, and announceAt
	// when it is announced again.
	announced  int
	announceAt time.Duration
	conflict   Conflict
	// slot is its place in Runner.due, from 1; 0 if it is not there. due is when something was due for it at the last
	// settle.
	slot int
	due  time.Duration
}

// add makes an address known, with the deadline that an earlier process has left.
func (r *Runner) add(addr netip.Addr, standing time.Duration) *address {
	a := &address{addr: addr, key: record.Key(record.Addresses, addr.String()), deadline: standing,
		announceAt: never, machine: vip.New(r.self.Node, addr, standing, vip.Env{Wall: time.Now, Nonce: rand.Text})}
	if was := r.known[addr]; was != nil {
		a.on, a.open = was.on, was.open
		r.touch(was)
	}
	r.known[addr] = a
	r.touch(a)
	if q, promised := r.promises[addr]; promised {
		a.machine.Asked(virtual.Now(), q)
		delete(r.promises, addr)
	}
	r.fence(a)
	return a
}

// fence closes an address that has no deadline. It does not fence an address that the host
// has by itself: by mistake that could be the one that the administrator uses.
func (r *Runner) fence(a *address) {
	if !r.fenced || a.deadline != 0 {
		return
	}
	_, err := r.cfg.Host.LinkOf(netip.PrefixFrom(a.addr, a.addr.BitLen()), "")
	if own := new(virtual.OwnError); errors.As(err, &own) {
		r.warn(r.cfg.Host.Forget(a.addr))
		return
	}
	r.warn(r.shut(a, "this node does not hold it"))
}

// learn takes the record of the newest snapshot. Most changes are renewals by the holder: these leave the
// nodes that may hold the address, unless the members have changed.
func (r *Runner) learn(a *address, membersChanged bool) {
	s := r.snapshot
	view := vip.View{Revision: s.Revision(), Entry: a.entry, Nodes: a.view.Nodes}
	if s.Revision() >= a.entry.Revision { // or an earlier process has seen a newer record
		view.Entry, _ = s.Get(a.key)
	}
	view = a.machine.Complete(view)
	rec, err := record.Decode[record.Address](view.Entry)
	if err != nil || rec.Prefix.Addr() != a.addr || rec.Announce != "" {
		// A record that cannot be read, or has no holder, is none.
		rec, view.Entry = record.Address{}, kv.Entry{Key: a.key}
	}
	if membersChanged || view.Nodes.Candidates == nil || rec.Prefix != a.rec.Prefix ||
		!slices.Equal(rec.Candidates, a.rec.Candidates) {
		view.Nodes = r.members.Nodes(rec)
	}
	a.rec, a.entry, a.view = rec, view.Entry, view
}

// see gives the machine the newest snapshot and the state of the host.
func (r *Runner) see(a *address) {
	r.touch(a)
	a.view.Drained = r.members.Drained(r.self.Node)
	a.view.Unable = r.unableFor(a)
	r.do(a, a.machine.See(virtual.Now(), a.view))
	r.refresh(a)
}

// refresh gives the machine the state of the host if it has changed.
func (r *Runner) refresh(a *address) {
	if a.failed != "" && virtual.Now() >= a.retry {
		r.touch(a)
		a.failed = ""
	}
	for range 3 { // each can close the address, which can make it possible again
		unable := r.unableFor(a)
		if unable == a.view.Unable {
			return
		}
		a.view.Unable = unable
		r.do(a, a.machine.See(virtual.Now(), a.view))
	}
}

// unableFor returns why this host cannot have an address, or an empty text.
func (r *Runner) unableFor(a *address) string {
	switch {
	case r.unable != "":
		return r.unable
	case r.unwatched != "":
		return r.unwatched
	case a.entry.Value == nil:
		return ""
	case !r.fenced:
		return "the fence is not loaded"
	case a.failed != "" && virtual.Now() < a.retry:
		return a.failed
	}
	on, err := r.cfg.Host.LinkOf(a.rec.Prefix, a.rec.Link)
	switch {
	case errors.Is(err, virtual.ErrUnknownLinks):
		return a.view.Unable
	case err != nil:
		return err.Error()
	case a.open && on.Index != a.on.Index:
		return "the address belongs to link " + on.Name + " now"
	}
	if err := r.cfg.Host.Attach(on); err != nil {
		return err.Error()
	}
	r.moved = r.moved || on.Index != a.on.Index
	a.on = on
	return ""
}

// do carries out what the machine wants. After a close that failed it sends nothing.
func (r *Runner) do(a *address, actions []vip.Action) {
	r.touch(a)
	r.remember(a)
	for _, action := range actions {
		switch action := action.(type) {
		case vip.Open:
			r.open(a, action.Deadline)
		case vip.Extend:
			r.extend(a, action.Deadline)
		case vip.Close:
			r.warn(r.shut(a, action.Reason))
		case vip.Commit:
			r.commit(a, action)
		case vip.Ask:
			r.ask(a, action)
		}
	}
}

// open opens an address and announces it.
func (r *Runner) open(a *address, deadline time.Duration) {
	if err := r.cfg.Host.Open(a.addr, a.on, deadline, a.rec.Hold+lifeBeyond); err != nil {
		r.fail(a, err)
		return
	}
	a.open, a.deadline, a.kept = true, deadline, virtual.Now()
	a.announced, a.announceAt = 0, 0
	r.announce(a)
	r.warn(r.cfg.Host.Listen(a.addr, a.on, func(by net.HardwareAddr) { r.heard(a, by) }))
	r.cfg.Log.Info("virtual address opened", "address", a.addr, "link", a.on.Name)
}

// heard notes that another host claims to have an address that this node holds. The node keeps
// it: otherwise any host on the link could end it.
func (r *Runner) heard(a *address, by net.HardwareAddr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.open || r.known[a.addr] != a {
		return
	}
	last := a.conflict
	a.conflict = Conflict{By: by, At: time.Now()}
	r.troubled[a] = true
	if a.conflict.At.Sub(last.At) < conflictEvery {
		return
	}
	r.cfg.Note(api.Event{Kind: api.AddressConflict, Object: "address " + a.addr.String(),
		Detail: a.conflict.describe(a.on.Name)})
}

// extend moves the deadline, and now and then the end of the address's life.
func (r *Runner) extend(a *address, deadline time.Duration) {
	err := r.cfg.Host.Extend(a.addr, deadline)
	a.deadline = deadline
	if now := virtual.Now(); err == nil && now >= a.kept+keepEvery {
		a.kept = now
		err = r.cfg.Host.Keep(a.addr, a.on, a.rec.Hold+lifeBeyond)
	}
	if err != nil {
		r.fail(a, err)
	}
}

// fail keeps the node from taking the address for a while.
func (r *Runner) fail(a *address, err error) {
	r.touch(a)
	r.cfg.Log.Warn("virtual address", "address", a.addr, "error", err)
	a.failed, a.retry = err.Error(), virtual.Now()+failedFor
}

// shut closes an address.
func (r *Runner) shut(a *address, reason string) error {
	if !r.fenced {
		return nil
	}
	was := a.open
	if was {
		r.warn(r.cfg.Host.Relay(a.addr, a.on))
	}
	r.touch(a)
	err := r.cfg.Host.Close(a.addr, a.on)
	a.unclosed = err != nil
	a.open, a.deadline, a.announceAt = false, 0, never
	if was {
		r.cfg.Log.Info("virtual address closed", "address", a.addr, "reason", reason)
		r.cfg.Note(api.Event{Kind: api.AddressLost, Object: "address " + a.addr.String(), Detail: reason})
	}
	return err
}

// commit sends a transaction.
func (r *Runner) commit(a *address, c vip.Commit) {
	life := r.life
	if life == nil {
		return
	}
	if a.unclosed {
		a.unclosed = r.shut(a, "") != nil
	}
	unclosed := a.unclosed
	r.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(life, c.Timeout)
		defer cancel()
		result, err := kv.Result{}, error(kv.ErrUnavailable)
		if !unclosed {
			result, err = r.cfg.Store.Commit(ctx, c.Txn)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.life == nil || r.known[a.addr] != a {
			return
		}
		r.do(a, a.machine.Answered(virtual.Now(), c.ID, result, err))
		r.refresh(a)
		if a.machine.Released() {
			close(r.released)
			r.released = make(chan struct{})
		}
		r.settle()
	})
}

// next returns when something is due.
func (a *address) next() time.Duration {
	at := min(a.machine.Next(), a.announceAt)
	if a.failed != "" {
		at = min(at, a.retry)
	}
	return at
}

// announceAfter are the times between announcements: some hosts ignore what comes within a
// second, and switches and routers forget.
var announceAfter = []time.Duration{100 * time.Millisecond, time.Second, 1100 * time.Millisecond,
	1100 * time.Millisecond, 1100 * time.Millisecond, 1100 * time.Millisecond}

const announceEvery = time.Minute

// announce announces an address if that is due.
func (r *Runner) announce(a *address) {
	now := virtual.Now()
	if !a.open || now < a.announceAt {
		return
	}
	r.warn(r.cfg.Host.Announce(a.addr, a.on))
	after := announceEvery
	if a.announced < len(announceAfter) {
		after = announceAfter[a.announced]
	}
	a.announced++
	a.announceAt = now + after
}
