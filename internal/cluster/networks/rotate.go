package networks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// Theory of operation. A node replaces the key that it has in an encrypted network when the key is old:
//
//  1. It writes the next key to a file, and publishes its public key as Next. This proves that the store
//     answers, and that a restarted daemon finds the same next key.
//  2. When all nodes of the network are alive, it gives the WireGuard link the next key. From then on the
//     kernel keeps what it sends, up to 128 packets for each host, and still accepts packets of the earlier
//     key's sessions.
//  3. At once it publishes the next key as Public. The other nodes replace the peer's key, and their kernels
//     begin a handshake, after which both sides send what they have kept.
//  4. It replaces the file of the earlier key.
//
// The link has the key of the record at any time except between steps 2 and 3. If the daemon is killed there,
// or the store does not answer within a second, the link gets the earlier key back, which all nodes still have.
// When the store has committed step 3, the link keeps the next key, however late the snapshot with it is.

// rotation is a key whose next key was published.
type rotation struct {
	network string
	// node and key are the entries of this node and of its key.
	node, key kv.Entry
	// to is the next public key.
	to string
}

// attempts are those to replace a key that have failed since the last one that has not.
type attempts struct {
	failed int
	// err is the error of the last one, and next the time of the next one.
	err  error
	next time.Time
}

// switchedKey is the public key that the link has in place of that of the snapshot.
type switchedKey struct {
	public string
	// revision is that of the record with the key; 0 before the store has committed it.
	revision int64
}

// rotateLimit limits how long the link has another key than the record, and rotatePause how soon the next attempt
// follows one that has failed.
const (
	rotateLimit = time.Second
	rotatePause = 10 * time.Minute
)

// ownKeys returns the record that the node's key should have, according to the files and the record that it
// has. It creates the files that are missing.
func (n *Networks) ownKeys(network string, have kv.Entry) (record.NodeKey, error) {
	public, err := ownKey(n.keyFile(network))
	if err != nil {
		return record.NodeKey{}, err
	}
	next, err := publicKey(n.nextFile(network))
	if errors.Is(err, fs.ErrNotExist) {
		if !n.old(n.keyFile(network)) {
			return record.NodeKey{Public: public}, nil
		}
		next, err = ownKey(n.nextFile(network))
	}
	if err != nil {
		return record.NodeKey{}, err
	}
	if is, _ := record.Decode[record.NodeKey](have); is.Public == next {
		return record.NodeKey{Public: next}, n.finish(network)
	}
	return record.NodeKey{Public: public, Next: next}, nil
}

// old reports whether a key has reached its age.
func (n *Networks) old(file string) bool {
	info, err := os.Stat(file)
	return err == nil && time.Since(info.ModTime()) >= n.cfg.KeyAge
}

// rotate gives the link the next key, and publishes it. It waits for nodes that are not alive: they could not
// follow.
func (n *Networks) rotate(ctx context.Context, s kv.Snapshot, r rotation) error {
	a := n.attempts[r.network]
	if time.Now().Before(a.next) {
		return a.err
	}
	for e := range s.Under(record.Key(record.Keys, r.network) + "/") {
		names := record.Names(record.Keys, e.Key, 2)
		node, exists, _ := record.Get[record.Node](s, record.Key(record.Nodes, names[1]))
		if _, alive := s.Get(record.Key(record.Alives, names[1])); exists && !alive {
			return fmt.Errorf("network %s: replace this node's key: node %s is not alive: start its daemon, or remove it "+
				"with `fairlead cluster rm %s`", r.network, node.Name, node.Name)
		}
	}
	unchanged := []kv.Condition{{Key: r.node.Key, Revision: r.node.Revision, Value: r.node.Value},
		{Key: r.key.Key, Revision: r.key.Revision, Value: r.key.Value}}
	if committed, err := n.rotateCommit(ctx, kv.Txn{If: unchanged}); err != nil || committed == 0 {
		return err // the store does not answer now, or the snapshot is an earlier one
	}
	err := n.replaceKey(ctx, r, unchanged)
	if err == nil {
		delete(n.attempts, r.network)
		n.cfg.Log.Info("key replaced", "network", r.network, "public", r.to)
		return nil
	}
	a.failed++
	a.err, a.next = fmt.Errorf("network %s: replace this node's key: %w", r.network, err), time.Now().Add(rotatePause)
	if a.failed > 1 { // reported, whatever the reason is
		a.err = fmt.Errorf("network %s: replace this node's key: %d attempts have failed: %v", r.network, a.failed, err)
	}
	n.attempts[r.network] = a
	return a.err
}

// rotateCommit commits a transaction within rotateLimit. It returns its revision, or 0 if it was not committed.
func (n *Networks) rotateCommit(ctx context.Context, t kv.Txn) (revision int64, err error) {
	limited, cancel := context.WithTimeout(ctx, rotateLimit)
	defer cancel()
	result, err := n.cfg.Store.Commit(limited, t)
	if err != nil || !result.Committed {
		return 0, err
	}
	return result.Revision, nil
}

// replaceKey gives the link the next key, and publishes it if the records are unchanged. After an error the link has
// the key of the snapshot.
func (n *Networks) replaceKey(ctx context.Context, r rotation, unchanged []kv.Condition) error {
	n.switchKey(r.network, switchedKey{public: r.to})
	err := problemOf(r.network, n.apply())
	var revision int64
	if err == nil {
		revision, err = n.rotateCommit(ctx, kv.Txn{If: unchanged,
			Then: []kv.Change{{Key: r.key.Key, Value: record.Encode(record.NodeKey{Public: r.to})}}})
	}
	if err == nil && revision == 0 {
		err = errors.New("this node's records have changed meanwhile")
	}
	if err != nil {
		n.switchKey(r.network, switchedKey{})
		n.apply() // the problems are those of the last snapshot
		return err
	}
	n.switchKey(r.network, switchedKey{r.to, revision})
	return nil
}

// problemOf returns the problem of a network as an error, nil if it has none.
func problemOf(network string, problems []string) error {
	for _, problem := range problems {
		if text, is := strings.CutPrefix(problem, "network "+network+":"); is {
			return errors.New(strings.TrimSpace(text))
		}
	}
	return nil
}

// switchKey notes the key that the host has in a network in place of that of the snapshot; none if it has no public
// key.
func (n *Networks) switchKey(network string, k switchedKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.switched[network] = k
	if k.public == "" {
		delete(n.switched, network)
	}
	n.forgetSwitched()
}

// forgetSwitched forgets the keys that the snapshot has. The caller has the mutex.
func (n *Networks) forgetSwitched() {
	maps.DeleteFunc(n.switched, func(_ string, k switchedKey) bool {
		return n.snapshot == nil || k.revision != 0 && n.snapshot.Revision() >= k.revision
	})
}

// finish makes the next key that of the file. The host uses the file with the next key until it has the other.
func (n *Networks) finish(network string) error {
	next, fresh := n.nextFile(network), n.keyFile(network)+freshSuffix
	public, err := publicKey(next)
	if is, _ := publicKey(n.keyFile(network)); err == nil && is == public {
		return os.Remove(next) // an earlier daemon has replaced the file
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a daemon that was killed
		return err
	}
	if err := os.Chtimes(next, time.Time{}, time.Now()); err != nil { // the age of a key is that of its use
		return err
	}
	if err := os.Link(next, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, n.keyFile(network)); err != nil {
		return err
	}
	n.apply()
	return os.Remove(next)
}

// withKey returns a network with the file of this node's private key. switched is the public key that the node
// has in place of that of the snapshot; it can be empty.
func (n *Networks) withKey(network model.Network, s kv.Snapshot, self, switched string) model.Network {
	k, _, _ := record.Get[record.NodeKey](s, record.Key(record.Keys, network.Name, self)) // derive reports it
	if switched != "" {
		network.Overlay.Peers = slices.Clone(network.Overlay.Peers)
		for i := range network.Overlay.Peers {
			if p := &network.Overlay.Peers[i]; p.PublicKey == k.Public {
				p.PublicKey = switched
			}
		}
		k.Public = switched
	}
	network.Overlay.KeyFile = n.keyFile(network.Name)
	if public, err := publicKey(network.Overlay.KeyFile); err != nil || public != k.Public {
		if next, err := publicKey(n.nextFile(network.Name)); err == nil && next == k.Public {
			network.Overlay.KeyFile = n.nextFile(network.Name)
		}
	}
	return network
}
