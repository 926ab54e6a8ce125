package certificates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/model/gateway"
)

// errLost is the error of a change without the lock of its value.
var errLost = errors.New("another node has taken the lock, or this one could not renew it in time")

// lock is a lock that this process has, or tries to take.
type lock struct {
	*Certificates
	key string
	// held ends when the lock is lost, or lose is called.
	held context.Context
	lose context.CancelCauseFunc
	// ended is closed when the lock is not renewed any more.
	ended chan struct{}

	// changing has room for the one goroutine whose transaction depends on the fields below.
	changing chan struct{}
	value    record.CertificateLock
	revision int64
}

// free returns when a lock may be taken: now, or when its holder has not renewed it for Lapse. The caller
// has the mutex.
func (c *Certificates) free(name string) time.Time {
	e, exists := c.snapshot.Get(record.CertificateLocks + name)
	if !exists {
		return time.Time{}
	}
	if was, err := record.Decode[record.CertificateLock](e); err == nil && was.Holder == c.self.Node &&
		c.held[name] == nil {
		return time.Time{} // an earlier process of this node has ended
	}
	at, known := c.seen[name]
	if !known { // recalled
		at = seen{e.Revision, time.Now()}
		c.seen[name] = at
	}
	return at.at.Add(Lapse)
}

// Try takes a lock for as long as ctx lasts and it is not lost; held ends then, with the cause. It returns
// how many holders before have ended without a result. Returns gateway.Busy (errors.As) if another one has
// the lock. After each error the gateway is notified when another attempt makes sense.
func (c *Certificates) Try(ctx context.Context, name string) (held context.Context, interrupted int, err error) {
	l, t, err := c.begin(name)
	if err != nil {
		return nil, 0, err
	}
	result, _, err := kv.Repeat(ctx, c.cfg.Store, t)
	entry, taken := l.outcome(result)
	switch {
	case err != nil:
		err = fmt.Errorf("take the lock of a certificate: %w", err)
	case !taken:
		err = c.busy(entry)
	default:
		err = c.await(ctx, entry.Revision)
	}
	if err != nil {
		if taken || errors.Is(err, kv.ErrUnknown) {
			l.release(ctx)
		}
		c.giveUp(name, err)
		return nil, 0, err
	}
	l.revision, interrupted = entry.Revision, l.value.Interrupted
	c.mu.Lock()
	l.held, l.lose = context.WithCancelCause(ctx)
	c.mu.Unlock()
	go l.renew()
	if left := c.challengesOf(name); len(left) > 0 { // by a holder that has ended
		if _, err := l.change(ctx, left); err != nil {
			return nil, 0, errors.Join(err, c.Unlock(ctx, name))
		}
	}
	return l.held, interrupted, nil
}

// begin returns the transaction that takes a lock, if that is possible.
func (c *Certificates) begin(name string) (*lock, kv.Txn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ready(); err != nil {
		c.retryAt(name, time.Now().Add(tryAgain))
		return nil, kv.Txn{}, err
	}
	e, exists := c.snapshot.Get(record.CertificateLocks + name)
	switch at := c.free(name); {
	case c.held[name] != nil:
		c.retryAt(name, time.Now().Add(tryAgain))
		return nil, kv.Txn{}, gateway.Busy{Host: c.self.Name}
	case time.Now().Before(at):
		c.retryAt(name, at)
		return nil, kv.Txn{}, c.busyWith(e)
	}
	delete(c.waits, name)
	value := record.CertificateLock{Holder: c.self.Node, Process: c.process, Sequence: 1}
	if exists {
		was, _ := record.Decode[record.CertificateLock](e) // one that cannot be read is replaced
		value.Sequence, value.Interrupted = was.Sequence+1, was.Interrupted
		if was.Process != c.process { // this one has not ended: its attempt did not begin, or was not released
			value.Interrupted++
		}
	}
	l := &lock{Certificates: c, key: record.CertificateLocks + name, value: value, ended: make(chan struct{}),
		held: context.Background(), lose: func(error) {}, changing: make(chan struct{}, 1)}
	c.held[name] = l
	return l, kv.Txn{If: []kv.Condition{{Key: l.key, Revision: e.Revision}},
		Then: []kv.Change{{Key: l.key, Value: record.Encode(value)}}}, nil
}

// retryAt makes Run call the gateway when a lock that was refused may be free. The caller has the mutex.
func (c *Certificates) retryAt(name string, at time.Time) {
	c.waits[name] = at
	c.wake.Send()
}

// ready returns why the host cannot have a lock. The caller has the mutex.
func (c *Certificates) ready() error {
	switch {
	case c.self.Node == "":
		return errNoCluster
	case c.snapshot == nil:
		return errNoRecords
	}
	return nil
}

// outcome returns the lock's entry after a transaction that changes it, and whether this process has the
// lock: the answer to an earlier transaction may have been lost.
func (l *lock) outcome(r kv.Result) (e kv.Entry, mine bool) {
	if r.Committed {
		return kv.Entry{Key: l.key, Revision: r.Revision}, true
	}
	for _, e := range r.Current {
		if e.Key == l.key {
			is, err := record.Decode[record.CertificateLock](e)
			return e, err == nil && is.Process == l.process
		}
	}
	return kv.Entry{Key: l.key}, false
}

// busy is busyWith for a caller without the mutex.
func (c *Certificates) busy(e kv.Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busyWith(e)
}

// busyWith names the holder of a lock.
func (c *Certificates) busyWith(e kv.Entry) error {
	was, err := record.Decode[record.CertificateLock](e)
	if err != nil {
		return gateway.Busy{Host: "another node"}
	}
	n, known, err := record.Get[record.Node](c.snapshot, record.Key(record.Nodes, was.Holder))
	if !known || err != nil {
		return gateway.Busy{Host: "node " + was.Holder}
	}
	return gateway.Busy{Host: n.Name}
}

// release deletes the record of a lock if this process has put it. The revision is not known: change learns it. If
// the store does not answer, the record stays until it lapses.
func (l *lock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	_, _ = l.change(ctx, []kv.Change{{Key: l.key}})
}

// giveUp ends an attempt to take a lock.
func (c *Certificates) giveUp(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, name)
	c.retryAt(name, time.Now().Add(tryAgain))
	if s, known := c.seen[name]; known && !errors.As(err, new(gateway.Busy)) {
		c.seen[name] = seen{s.revision, time.Now()} // its holder may not reach the store either
	}
}

// await waits until the newest snapshot has a revision: then it has all that was written before.
func (c *Certificates) await(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return c.until(ctx, func() bool { return c.snapshot == nil || c.snapshot.Revision() >= revision },
		"this host does not get the newest records: see `fairlead cluster status`")
}

// until waits until a condition holds, which it checks with the mutex.
func (c *Certificates) until(ctx context.Context, holds func() bool, problem string) error {
	for {
		c.mu.Lock()
		done, advanced := holds(), c.advanced
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return errors.New(problem)
		}
	}
}

// renew renews the lock's record while it is held. If that fails for Lapse, or another node has the lock, it
// is lost.
func (l *lock) renew() {
	defer close(l.ended)
	last := time.Now()
	for kv.Wait(l.held, renewEvery); l.held.Err() == nil; kv.Wait(l.held, renewEvery) {
		err := l.renewOnce()
		switch {
		case err == nil:
			last = time.Now()
		case errors.Is(err, errLost):
			l.lose(err)
		case time.Since(last) >= Lapse:
			l.lose(fmt.Errorf("%w: %w", errLost, err))
		}
	}
}

func (l *lock) renewOnce() error {
	l.changing <- struct{}{}
	defer func() { <-l.changing }()
	ctx, cancel := context.WithTimeout(l.held, releaseLimit)
	defer cancel()
	l.value.Sequence++
	result, _, err := kv.Repeat(ctx, l.cfg.Store, kv.Txn{If: []kv.Condition{{Key: l.key, Revision: l.revision}},
		Then: []kv.Change{{Key: l.key, Value: record.Encode(l.value)}}})
	if err != nil {
		return err
	}
	entry, mine := l.outcome(result)
	if !mine {
		return errLost
	}
	l.revision = entry.Revision
	return nil
}

// change commits changes if this process still has the lock, and returns their revision. It is harmless to
// commit them twice.
func (l *lock) change(ctx context.Context, changes []kv.Change) (int64, error) {
	select {
	case l.changing <- struct{}{}:
	case <-ctx.Done(): // the renewal waits for the store, too
		return 0, ctx.Err()
	}
	defer func() { <-l.changing }()
	for {
		result, lost, err := kv.Repeat(ctx, l.cfg.Store, kv.Txn{
			If: []kv.Condition{{Key: l.key, Revision: l.revision}}, Then: changes})
		if err != nil {
			return 0, err
		}
		if result.Committed {
			return result.Revision, nil
		}
		entry, mine := l.outcome(result)
		switch {
		case mine: // the answer to a renewal was lost
			l.revision = entry.Revision
		case lost && entry.Value == nil && isRelease(l.key, changes):
			return result.Revision, nil
		default:
			l.lose(errLost)
			return 0, errLost
		}
	}
}

// isRelease reports whether changes delete the lock itself.
func isRelease(key string, changes []kv.Change) bool {
	return slices.ContainsFunc(changes, func(c kv.Change) bool { return c.Key == key })
}

// holding returns a lock of this process.
func (c *Certificates) holding(name string) (*lock, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.held[name]; l != nil {
		return l, nil
	}
	return nil, errLost
}

// Lock implements certmagic.Locker: it waits for the lock.
func (c *Certificates) Lock(ctx context.Context, name string) error {
	for {
		_, _, err := c.Try(context.WithoutCancel(ctx), name)
		if !errors.As(err, &gateway.Busy{}) {
			return err
		}
		c.mu.Lock()
		at, advanced := c.waits[name], c.advanced
		c.mu.Unlock()
		limited, cancel := context.WithDeadline(ctx, at)
		select {
		case <-advanced:
		case <-limited.Done():
		}
		cancel()
		if ctx.Err() != nil {
			return fmt.Errorf("take the lock of %s: %w", name, err)
		}
	}
}

// Unlock implements certmagic.Locker. It also removes challenges that are left.
func (c *Certificates) Unlock(ctx context.Context, name string) error {
	l, err := c.holding(name)
	if err != nil {
		return nil // the host has left the cluster
	}
	l.lose(context.Canceled)
	<-l.ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	_, err = l.change(ctx, append(c.challengesOf(name), kv.Change{Key: l.key}))
	c.mu.Lock()
	delete(c.held, name)
	if errors.Is(context.Cause(l.held), errLost) {
		c.retryAt(name, time.Now().Add(tryAgain))
	}
	c.advance()
	c.mu.Unlock()
	if err != nil && !errors.Is(err, errLost) {
		return fmt.Errorf("release the lock of %s: %w", name, err)
	}
	return nil
}

// challengesOf returns the changes that delete the challenges of a lock.
func (c *Certificates) challengesOf(name string) (changes []kv.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot == nil {
		return nil
	}
	for e := range c.snapshot.Under(record.Challenges + name + "/") {
		changes = append(changes, kv.Change{Key: e.Key})
	}
	return slices.Clip(changes)
}

// sealed returns the change that stores a value.
func (c *Certificates) sealed(key string, plain []byte) (kv.Change, error) {
	c.mu.Lock()
	box := c.box
	c.mu.Unlock()
	if box == nil {
		return kv.Change{}, errNoCluster
	}
	return sealedIn(box, key, plain)
}

func sealedIn(box *trust.Box, key string, plain []byte) (kv.Change, error) {
	if len(plain) > MaxValue {
		return kv.Change{}, fmt.Errorf("it has %d bytes: want at most %d", len(plain), MaxValue)
	}
	return kv.Change{Key: key, Value: record.Encode(record.Sealed{Sealed: box.Seal(key, plain)})}, nil
}
