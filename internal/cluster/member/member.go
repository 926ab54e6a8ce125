// Package member makes a host a member of a cluster: it creates and joins clusters, keeps the
// node's certificate and records, serves the API for other nodes, and passes the cluster's snapshots
// on. It does not decide what the snapshots mean for the host: its consumers do.
//
// Theory of operation. All that identifies the node is in one file, which is replaced as a whole. It
// is written before the store is changed, with the ids and the keys that will be used. So Init and
// Join can be repeated after a crash at any moment: the second attempt finds what the first has
// committed, and recognises it by the ids.
//
//	etcd ──► Store.Updates ──► Member ──► consumers (networks, services, virtual addresses)
//	         transactions ◄── Member: its own record, alive, certificates of joining nodes
package member

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/lock"
)

// Port is the default TCP port of the API for other nodes.
const Port = 7947

// startAgain is how long a member whose tasks could not be started waits before it tries again.
const startAgain = 5 * time.Second

// Store is a connection to the store of a cluster.
type Store interface {
	kv.Committer
	// Updates sends the newest known snapshot, and one for each change that follows, until ctx
	// ends. It is called once.
	Updates(ctx context.Context) <-chan kv.Update
	// Health describes the store's servers, whether the snapshots are frozen, and whether the store accepts
	// transactions. It may commit the probe, which changes nothing.
	Health(ctx context.Context, probe kv.Txn) api.EtcdHealth
	// Frozen returns why the snapshots are frozen; empty if they are not. It asks no server.
	Frozen() string
	// Reconnect uses another access to the same store. It does not wait for an answer, and keeps the snapshot.
	Reconnect(access api.EtcdAccess) error
	// Drop closes the store's connections from addresses that the host does not have any more.
	Drop(local []netip.Addr)
	// Accept ends a freeze: the snapshot of the restored store replaces the earlier one.
	Accept(ctx context.Context) error
	Close() error
}

// Self identifies the node to consumers.
type Self struct {
	Cluster, Node, Name string
}

// Consumer derives something from snapshots.
type Consumer interface {
	// Update returns the problems of the cluster's objects on this node. The Member calls it from
	// one goroutine, with each update in turn.
	Update(ctx context.Context, self Self, u kv.Update) (problems []string)
	// Leave removes everything that came from the cluster.
	Leave() error
}

// Releaser is a Consumer that gives up what other nodes can take over, before its node leaves or
// after it was removed.
type Releaser interface {
	// Release returns when the other nodes know, or when ctx ends. Afterwards the Consumer takes
	// nothing until Resume.
	Release(ctx context.Context)
	Resume()
}

// releaseLimit is how long Release may take.
const releaseLimit = 2 * time.Second

// release releases what the consumers have, and returns the function that undoes it.
func (m *Member) release(ctx context.Context) (resume func()) {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	var all []Releaser
	for _, c := range m.cfg.Consumers {
		if r, ok := c.(Releaser); ok {
			r.Release(ctx)
			all = append(all, r)
		}
	}
	return func() {
		for _, r := range all {
			r.Resume()
		}
	}
}

// Config contains what a Member needs.
type Config struct {
	// Dir is its directory. Only its owner may read it. Run is a directory that exists, and whose files do not
	// outlive the boot.
	Dir, Run string
	// Version is that of Fairlead. Host is the default name of the node.
	Version, Host string
	// Open connects to the store of the cluster with this name and id. It does not wait for an
	// answer. The store keeps its files in dir. The id is empty if the cluster is to be created.
	Open func(access api.EtcdAccess, cluster, id, dir string) (Store, error)
	// Listen listens at an address of the node, which need not exist yet; see Listen. Dial connects
	// to other nodes.
	Listen func(ctx context.Context, at netip.AddrPort) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	// Links returns the links of the host.
	Links func() ([]Link, error)
	// Machine identifies a host without hardware addresses, as the function Machine does; it may be empty.
	Machine string
	// MTU returns the smallest MTU of the host's links that have these addresses, in bytes; 0 if one of
	// the addresses is on no link.
	MTU func(addresses []netip.Addr) (int, error)
	// Consumers get the updates, in this order.
	Consumers []Consumer
	// Unable returns the virtual addresses that this node cannot hold now, and why; it may be nil.
	Unable func() map[netip.Addr]string
	// Attached returns the attachments that Leave would remove.
	Attached func() []string
	// Note records an event.
	Note func(api.Event)
	// Changed is called when the host becomes a member or is none any more; it may be nil.
	Changed func()
	Log     *slog.Logger
	Now     func() time.Time
}

// Member is a host's membership. Its methods may be called concurrently.
type Member struct {
	cfg Config
	// orders is held by one request that changes the membership, and starting by start and stop.
	orders, starting sync.Mutex

	// writing is locked while the file is written. mu is not, because virtual addresses need it in time.
	writing sync.Mutex

	// mu protects the fields below.
	mu       lock.Mutex
	file     file
	snapshot kv.Snapshot
	// advanced is closed when the snapshot is replaced.
	advanced chan struct{}
	store    Store
	// reconnected is true if the leased record of the node is of an earlier connection, which does not renew the
	// lease any more.
	reconnected bool
	// failed is why the tasks could not be started.
	failed error
	// problems are those of the cluster's objects on this host. lacking are those of the host without an address of
	// the node, and uncopied is the one of the membership without a copy.
	problems, lacking []string
	uncopied          string
	host              host
	// frozen is why this host does not act as its node; empty if it does.
	frozen string
	// addresses are those of the snapshot's nodes.
	addresses map[netip.Addr]bool
	progress  progress
	// end ends the tasks of the member; ended is closed when they have.
	end   func()
	ended chan struct{}
	// judged and report are sent when frozen has changed, and moved when the node has other addresses.
	judged, report, moved alarm.Signal
	// resume undoes the release of a node that was removed or is frozen. Only follow uses it.
	resume func()
	// leaving is true while the node deletes its own records.
	leaving bool
	life    context.Context
	since   time.Time
	asks    map[string]Ask
	// strangers limits the join requests that nothing is known of.
	strangers budget
}

// New reads the membership from the directory. Run starts its tasks.
func New(cfg Config) (*Member, error) {
	m := &Member{cfg: cfg, asks: map[string]Ask{}, advanced: make(chan struct{}), judged: alarm.NewSignal(),
		report: alarm.NewSignal(), moved: alarm.NewSignal()}
	f, err := readFile(cfg.Dir)
	if err != nil {
		return nil, err
	}
	m.file = f
	disk{m}.note(f.protect(cfg.Dir))
	return m, nil
}

// Joined reports whether the host is a member of a cluster.
func (m *Member) Joined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.file.Phase == phaseMember
}

// Run runs the tasks of the member until ctx ends. It returns no error: what fails is tried again.
func (m *Member) Run(ctx context.Context) error {
	m.mu.Lock()
	m.life, m.since = ctx, m.cfg.Now()
	m.mu.Unlock()
	for last := ""; ctx.Err() == nil; kv.Wait(ctx, startAgain) {
		err := m.start()
		if err != nil && err.Error() != last {
			m.cfg.Log.Error("start the membership of the cluster", "error", err)
			last = err.Error()
		}
	}
	m.stop()
	return nil
}

// start starts the tasks of a host that is a member, unless they run.
func (m *Member) start() error {
	m.starting.Lock()
	defer m.starting.Unlock()
	m.mu.Lock()
	f, life, runs := m.file, m.life, m.end != nil
	m.mu.Unlock()
	if f.Phase != phaseMember || life == nil || life.Err() != nil || runs {
		return nil
	}
	id, err := m.cfg.recallInstance(f.Node)
	var store Store
	if err == nil {
		store, err = m.cfg.Open(f.Access, f.ClusterName, f.Cluster, m.cfg.Dir)
	}
	standing{m}.look() // the first snapshot is judged by it
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = err
	if err != nil {
		return err
	}
	m.host.id = id
	ctx, end := context.WithCancel(life)
	m.store, m.end, m.ended = store, end, make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() { m.follow(ctx, store.Updates(ctx)) })
	tasks.Go(func() { standing{m}.keepLooking(ctx) })
	tasks.Go(func() { reporter{m}.keepAlive(ctx, store) })
	tasks.Go(func() { renewal{m}.renew(ctx) })
	tasks.Go(func() { m.serve(ctx) })
	ended := m.ended
	go func() { tasks.Wait(); close(ended) }()
	return nil
}

// stop ends the tasks and closes the store.
func (m *Member) stop() {
	m.starting.Lock()
	defer m.starting.Unlock()
	m.mu.Lock()
	end, ended, store := m.end, m.ended, m.store
	m.end, m.store = nil, nil
	m.mu.Unlock()
	if end == nil {
		return
	}
	end()
	<-ended
	if err := store.Close(); err != nil {
		m.cfg.Log.Warn("close the connection to etcd", "error", err)
	}
}

// noteChanges records events about the nodes.
func (m *Member) noteChanges(before, now kv.Snapshot) {
	if before == nil {
		return
	}
	was, is := nodesOf(before), nodesOf(now)
	for id, n := range is {
		old, known := was[id]
		switch {
		case !known:
			m.cfg.note(api.NodeJoined, n.Name, "")
		case n.Drained && !old.Drained:
			m.cfg.note(api.NodeDrained, n.Name, "")
		case !n.Drained && old.Drained:
			m.cfg.note(api.NodeEnabled, n.Name, "")
		}
	}
	for id, n := range was {
		if _, known := is[id]; known {
			continue
		}
		m.cfg.note(api.NodeLeft, n.Name, "")
		m.mu.Lock()
		removed := id == m.file.Node && !m.leaving
		m.mu.Unlock()
		if removed {
			m.cfg.note(api.NodeRemoved, n.Name, "this host was removed from the cluster and keeps what it has: "+
				"run `fairlead cluster leave` on it")
		}
	}
}

func (c *Config) note(kind api.EventKind, node, detail string) {
	c.Note(api.Event{Kind: kind, Object: "node " + node, Detail: detail})
}

func (m *Member) self() file {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.file
}

// nodesOf returns the nodes of a snapshot by their ids. It ignores records that cannot be read.
func nodesOf(s kv.Snapshot) map[string]record.Node {
	all := map[string]record.Node{}
	if s == nil {
		return all
	}
	for e, n := range record.Each[record.Node](s, record.Nodes) {
		if trust.ValidID(n.ID) && e.Key == record.Key(record.Nodes, n.ID) {
			all[n.ID] = n
		}
	}
	return all
}

func isNodeKey(key string) bool { return strings.HasPrefix(key, record.Nodes) }

// addressesOf returns the addresses of the nodes.
func addressesOf(s kv.Snapshot) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, n := range nodesOf(s) {
		for _, a := range n.Addresses {
			all[a] = true
		}
	}
	return all
}

// await waits until the newest snapshot has the revision, or ctx ends.
func (m *Member) await(ctx context.Context, revision int64) {
	for {
		m.mu.Lock()
		snapshot, advanced := m.snapshot, m.advanced
		m.mu.Unlock()
		if snapshot != nil && snapshot.Revision() >= revision {
			return
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return
		}
	}
}

// snapshotAt waits for the snapshot with a change that was requested here, and returns it. Without it the
// request cannot go on.
func (m *Member) snapshotAt(ctx context.Context, revision int64) (kv.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotLimit)
	defer cancel()
	m.await(ctx, revision)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snapshot == nil || m.snapshot.Revision() < revision {
		return nil, fmt.Errorf("read the cluster's records: %w: repeat the command", kv.ErrUnavailable)
	}
	return m.snapshot, nil
}

// awaitOwn waits for the snapshot with a change that was requested here, so that the next request
// sees it. If that takes too long, for example in a freeze, it returns.
func (m *Member) awaitOwn(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, ownLimit)
	defer cancel()
	m.await(ctx, revision)
}

// isMember reports whether the newest snapshot has the node.
func (m *Member) isMember(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snapshot == nil {
		return false
	}
	_, known := m.snapshot.Get(record.Key(record.Nodes, id))
	return known
}

// accepts reports whether the newest snapshot has the node of a peer, with the peer's key.
func (m *Member) accepts(p trust.Peer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snapshot == nil {
		return false
	}
	n, known, err := record.Get[record.Node](m.snapshot, record.Key(record.Nodes, p.Node))
	return known && err == nil && n.KeyHash == p.KeyHash
}

// current returns the node's certificate with its key.
func (m *Member) current() trust.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.file.trusted()
}

// inCluster returns the store and the newest snapshot, or an error if the host is no member or has
// no snapshot yet.
func (m *Member) inCluster() (Store, kv.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.file.Phase == phaseMember && m.failed != nil:
		return nil, nil, fmt.Errorf("read the cluster's records: %w", m.failed)
	case m.file.Phase != phaseMember || m.store == nil:
		return nil, nil, api.Faultf(api.NotFound, "this host belongs to no cluster: create one with "+
			"`fairlead cluster init`, or join one with `fairlead cluster join`")
	case m.snapshot == nil:
		return nil, nil, fmt.Errorf("read the cluster's records: %w: see `fairlead cluster status`", kv.ErrUnavailable)
	}
	return m.store, m.snapshot, nil
}

// commit commits a transaction, and repeats it if the answer is lost. Callers accept that it was
// committed already then: they read the records again.
func commit(ctx context.Context, store kv.Committer, t kv.Txn) (kv.Result, error) {
	result, _, err := kv.Repeat(ctx, store, t)
	return result, err
}

// ownAddresses checks the addresses by which other nodes shall reach this host.
func (m *Member) ownAddresses(addresses []netip.Addr) error {
	if err := validAddresses(addresses); err != nil {
		return err
	}
	standing{m}.look()
	m.mu.Lock()
	defer m.mu.Unlock()
	if missing := m.host.missing(addresses); len(missing) > 0 {
		return api.Faultf(api.Invalid, "address %s: this host does not have it: it has %s", listed(missing),
			m.host.shown())
	}
	return nil
}

// validAddresses checks the addresses by which other nodes reach this one.
func validAddresses(addrs []netip.Addr) error {
	families := map[bool]bool{}
	for _, a := range addrs {
		switch {
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is4In6() || a.Zone() != "":
			return api.Faultf(api.Invalid, "address %s: want an address by which the other hosts reach this one", a)
		case families[a.Is4()]:
			return api.Faultf(api.Invalid, "address %s: want at most one address per family", a)
		}
		families[a.Is4()] = true
	}
	if len(addrs) == 0 {
		return api.Faultf(api.Invalid,
			"want an address by which the other hosts reach this one: name it with --address")
	}
	return nil
}
