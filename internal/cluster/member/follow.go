package member

import (
	"context"
	"slices"

	"fairlead/internal/cluster/kv"
)

// following passes updates on to the consumers. Only follow uses it.
type following struct {
	*Member
	// previous is the snapshot that the consumers have, and newest the last one. skipped are the keys that have
	// changed between them.
	previous, newest kv.Snapshot
	skipped          []string
	unused           garbage
}

// follow passes the updates on to the consumers. A node that was removed from the cluster, and a host that may not
// act as its node, pass nothing on: the host keeps what it has, except for what other nodes can take over. If the
// record returns, with another copy of the store for example, or the host may act again, it goes on.
func (m *Member) follow(ctx context.Context, updates <-chan kv.Update) {
	f := &following{Member: m}
	defer f.unused.stop()
	for {
		select {
		case u, ok := <-updates:
			if !ok {
				return
			}
			f.learn(u)
		case <-m.judged:
		}
		f.pass(ctx)
	}
}

// learn makes an update the newest snapshot.
func (f *following) learn(u kv.Update) {
	f.mu.Lock()
	before := f.snapshot
	f.snapshot = u.Snapshot
	nodesChanged := before == nil || slices.ContainsFunc(u.Changed, isNodeKey)
	if nodesChanged {
		f.addresses = addressesOf(u.Snapshot)
	}
	close(f.advanced)
	f.advanced = make(chan struct{})
	f.mu.Unlock()
	f.newest, f.skipped = u.Snapshot, union(f.skipped, u.Changed)
	if nodesChanged {
		f.noteChanges(before, u.Snapshot)
		standing{f.Member}.judge()
		f.move()
	}
}

// pass gives the consumers the newest snapshot, unless they have it or the host does not act as its node.
func (f *following) pass(ctx context.Context) {
	f.mu.Lock()
	self, frozen := Self{f.file.Cluster, f.file.Node, f.file.Name}, f.frozen != ""
	f.mu.Unlock()
	switch {
	case f.newest == nil:
		return
	case frozen: // no transaction is committed that others could wait for
		ended, cancel := context.WithCancel(ctx)
		cancel()
		f.resume = f.release(ended)
		return
	case !f.isMember(self.Node):
		f.resume = f.release(ctx)
		return
	}
	if f.resume != nil {
		f.resume()
		f.resume = nil
	}
	if f.newest == f.previous {
		return
	}
	u := kv.Update{Snapshot: f.newest, Changed: f.skipped}
	var problems []string
	for _, c := range f.cfg.Consumers {
		problems = append(problems, c.Update(ctx, self, u)...)
	}
	f.mu.Lock()
	f.problems, f.progress = problems, f.progress.after(f.previous, u)
	f.mu.Unlock()
	f.previous, f.skipped = f.newest, nil
	f.unused.left(len(u.Changed))
}

// move takes over the node's addresses from its record: they were changed by SetHost, or by a join that was repeated.
func (f *following) move() {
	f.mu.Lock()
	n, _, known := standing{f.Member}.ownRecord()
	node, acts := f.file.Node, known && f.frozen == "" && n.Instance.ID == f.host.id
	same := slices.Equal(n.Addresses, f.file.Addresses)
	f.mu.Unlock()
	if !acts || same {
		return
	}
	if err := f.amend(node, func(own *file) { own.Addresses = n.Addresses }); err != nil {
		f.cfg.Log.Error("store the addresses of the node", "error", err)
		return
	}
	f.cfg.Log.Info("addresses of the node changed", "addresses", n.Addresses)
	f.moved.Send()
}
