package networks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// rotation is a key whose next key was published.
type rotation struct {
	network string
	// node and key are the entries of this node and of its key.
	node, key kv.Entry
	// to is the next public key.
	to string
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
	if time.Now().Before(n.rotateFrom) {
		return nil
	}
	for e := range s.Under(record.Key(record.Keys, r.network) + "/") {
		names := record.Names(record.Keys, e.Key, 2)
		node, exists, _ := record.Get[record.Node](s, record.Key(record.Nodes, names[1]))
		if _, alive := s.Get(record.Key(record.Alives, names[1])); exists && !alive {
			return fmt.Errorf("network %s: replace this node's key: node %s is not alive: start its daemon, or remove it "+
				"with `fairlead cluster rm %s`", r.network, node.Name, node.Name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rotateLimit)
	defer cancel()
	unchanged := []kv.Condition{{Key: r.node.Key, Revision: r.node.Revision, Value: r.node.Value},
		{Key: r.key.Key, Revision: r.key.Revision, Value: r.key.Value}}
	result, err := n.cfg.Store.Commit(ctx, kv.Txn{If: unchanged})
	if err != nil || !result.Committed {
		return err // the store does not answer now, or the snapshot is an earlier one
	}
	n.rotateFrom = time.Now().Add(rotatePause)
	defer func() {
		n.switchKey(r.network, "")
		n.apply() // the problems are those of the last snapshot
	}()
	n.switchKey(r.network, r.to)
	for _, problem := range n.apply() {
		if strings.HasPrefix(problem, "network "+r.network+":") {
			return fmt.Errorf("replace this node's key: %s", problem)
		}
	}
	result, err = n.cfg.Store.Commit(ctx, kv.Txn{If: unchanged,
		Then: []kv.Change{{Key: r.key.Key, Value: record.Encode(record.NodeKey{Public: r.to})}}})
	if err != nil || !result.Committed {
		return err
	}
	n.rotateFrom = time.Time{}
	n.cfg.Log.Info("key replaced", "network", r.network, "public", r.to)
	return n.awaitApplied(ctx, result.Revision)
}

// switchKey notes the public key that the host has in a network in place of that of the snapshot; none if it
// is empty.
func (n *Networks) switchKey(network, public string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.switched[network] = public
	if public == "" {
		delete(n.switched, network)
	}
}

// finish makes the next key that of the file. The host uses the file with the next key until it has the other.
func (n *Networks) finish(network string) error {
	next, fresh := n.nextFile(network), n.keyFile(network)+".new"
	public, err := publicKey(next)
	if is, _ := publicKey(n.keyFile(network)); err == nil && is == public {
		return os.Remove(next) // an earlier daemon has replaced the file
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a daemon that was killed
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
