// Package record has the keys and values of a cluster in its store. It reads and writes
// them as JSON, refuses those that are not valid, and does nothing else.
//
// Unknown fields of values are ignored, so that nodes with an older version can read the
// records of newer ones. meta has the format, and a node refuses a newer format.
package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/model"
	"fairlead/internal/recovery"
)

// Format is the version of keys and values. A cluster with a greater one is refused.
const Format = 1

// The prefixes of keys. Each is followed by the names that its function takes.
const (
	MetaKey   = "meta"
	CAKey     = "ca"
	Nodes     = "nodes/"
	NodeNames = "names/"
	Alives    = "alive/"
	Removals  = "removed/"
	Clones    = "clones/"
	Tokens    = "tokens/"
	Networks  = "nets/"
	VNIs      = "vni/"
	Keys      = "keys/"
	Blocks    = "blocks/"
	Moves     = "moves/"
	Endpoints = "eps/"
	Services  = "svcs/"
	Reals     = "reals/"
	Addresses = "addrs/"
	BGPPeers  = "bgp/"
	// Certificates is followed by the key of a value in the storage of certificates,
	// CertificateLocks by the name of a lock, and Challenges by that of the certificate's
	// lock and a hash.
	Certificates     = "acme/values/"
	CertificateLocks = "acme/locks/"
	Challenges       = "acme/challenges/"
	Gateway          = "gateway/"
	Selected         = "selected/"
)

// Meta describes the cluster.
type Meta struct {
	// ID is drawn at random by init. It identifies the cluster, also after etcd was
	// restored from a snapshot.
	ID     string `json:"id"`
	Name   string `json:"name"`
	Format int    `json:"format"`
	// CA is the certificate of the cluster's authority, PEM.
	CA      string    `json:"ca"`
	Created time.Time `json:"created"`
	// Closed means that the last node deletes the cluster: no node joins any more.
	Closed bool `json:"closed,omitempty"`
}

// Node is a host of the cluster.
type Node struct {
	// ID is drawn at random when the node joins. A node that joins again is another node.
	ID string `json:"id"`
	// Name is that of the host, unique in the cluster.
	Name string `json:"name"`
	// Addresses are those by which the other nodes reach it, at most one per family: the
	// underlay of overlays, the next hop of routes.
	Addresses []netip.Addr `json:"addresses"`
	// MTU is the smallest MTU of the links that have these addresses, in bytes; 0 if it is not known.
	MTU int `json:"mtu,omitempty"`
	// Port is the TCP port of its API for other nodes.
	Port    uint16    `json:"port"`
	Version string    `json:"version"`
	Joined  time.Time `json:"joined"`
	// KeyHash is the SHA-256 hash of the public key of its certificates, hexadecimal.
	KeyHash string `json:"keyHash"`
	// Drained nodes hold no virtual address, accept no new connections for real
	// servers, and lease no new addresses. Their traffic continues.
	Drained bool `json:"drained,omitempty"`
	// Instance is the host that acts as the node. Its ID is empty if the node's version does not write it.
	Instance Instance `json:"instance,omitzero"`
}

// Instance is one of the hosts that have a node's state directory. Only one of them acts as the node.
type Instance struct {
	// ID is drawn at random. All processes of the host have the same until it reboots.
	ID string `json:"id"`
	// Hardware are hashes of the host's hardware addresses.
	Hardware []string `json:"hardware,omitempty"`
}

// Clone is a host that has a node's state directory, but does not act as the node. Its key has the node and
// the ID of the host's instance, and it is leased.
type Clone struct {
	// Addresses are some of the host's.
	Addresses []netip.Addr `json:"addresses"`
	Since     time.Time    `json:"since"`
}

// Removal is a node whose record was deleted, and that may still have others. It has a record until all
// are deleted.
type Removal struct {
	Name string `json:"name"`
}

// NodeName is the id of the node that has a name. It is changed together with Node, so that no two
// nodes have the same name.
type NodeName struct {
	Node string `json:"node"`
}

// Authority is the key of the cluster's CA, encrypted with the cluster's key.
type Authority struct {
	Sealed []byte `json:"sealed"`
}

// Alive is what a node says about itself while it reaches the store. It has nothing that changes with other
// records: each change would cost a write of every node.
type Alive struct {
	// Since is when its daemon started.
	Since time.Time `json:"since"`
	// Problems are those of cluster objects on this node.
	Problems []string `json:"problems,omitempty"`
	// Unable says why the node cannot hold virtual addresses. Other nodes do not expect it to take these.
	Unable map[netip.Addr]string `json:"unable,omitempty"`
	// Frozen is why the node changes nothing, and holds no virtual address; empty if it works.
	Frozen string `json:"frozen,omitempty"`
}

// Token is a join token. Its key has the SHA-256 hash of the secret.
type Token struct {
	Expires time.Time `json:"expires"`
	// Uses is how many nodes can still join with it.
	Uses int `json:"uses"`
}

// Network is a network of the cluster. Spec has the settings that all nodes share;
// peers, ranges and the host's addresses follow from blocks.
type Network struct {
	Spec model.Network `json:"spec"`
	// BlockBits is the prefix length of blocks, for each subnet of Spec.
	BlockBits []int `json:"blockBits"`
	// Direct means that nodes route the network's packets to each other's addresses
	// without encapsulation (driver routed).
	Direct bool `json:"direct,omitempty"`
	// Sequence grows with each block that is claimed, so that a block which was freed
	// and claimed again differs from the earlier one.
	Sequence int64 `json:"sequence"`
}

// Block is a part of a subnet, from which one node leases addresses.
type Block struct {
	Node     string `json:"node"`
	Sequence int64  `json:"sequence"`
}

// Move is an address outside a node's blocks, which the node has for one of its endpoints. At most one node
// has an address: the key is that of the address. The node that has the block does not lease it.
type Move struct {
	Node string `json:"node"`
}

// NodeKey is the public key of a node in an encrypted network.
type NodeKey struct {
	// Public is the WireGuard key, base64.
	Public string `json:"public"`
	// Next is the key that replaces Public, while a rotation is under way.
	Next string `json:"next,omitempty"`
}

// Endpoint is a sandbox that other nodes must know: by its name, or because it has a hardware address of
// its own.
type Endpoint struct {
	// Names are those that the cluster's DNS server answers.
	Names     []string     `json:"names,omitempty"`
	Addresses []netip.Addr `json:"addresses"`
	MAC       string       `json:"mac,omitempty"`
}

// Service is a virtual service of the cluster. Its selectors apply to the attachments
// of all nodes.
type Service struct {
	Spec model.VirtualService `json:"spec"`
	// Ingress are the names of the nodes that accept the service's traffic; empty means
	// all.
	Ingress []string `json:"ingress,omitempty"`
}

// Real is a real server: an attachment that a selector of the service has found on its node. Each
// node that uses it checks it.
type Real struct {
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port,omitempty"`
	Weight  int        `json:"weight"`
	// Draining gets no new connections.
	Draining bool `json:"draining,omitempty"`
}

// Address is a virtual address: at most one node answers for it at a time.
type Address struct {
	// Prefix is the address with the length of its subnet, e.g. 192.0.2.10/24.
	Prefix netip.Prefix `json:"prefix"`
	// Link is the name of the link that has it; empty means the link with an address in
	// the same subnet.
	Link string `json:"link,omitempty"`
	// Hold is for how long a put by the holder keeps the address.
	Hold time.Duration `json:"hold"`
	// Candidates are the ids of the nodes that may hold it; empty means all.
	Candidates []string `json:"candidates,omitempty"`
	// Holder is the id of the node that has the address; empty if none has.
	Holder string `json:"holder,omitempty"`
	// Epoch grows whenever the holder changes.
	Epoch int64 `json:"epoch"`
	// Sequence grows with each put by the holder.
	Sequence int64 `json:"sequence"`
	// Target is the id of the node to which a planned move is under way.
	Target string `json:"target,omitempty"`
	// Listed are the ids of the nodes that may claim the address from its holder. Only
	// the holder changes them: while etcd is away, it asks exactly these nodes.
	Listed []string `json:"listed,omitempty"`
	// Since is when the holder claimed the address, by its own clock.
	Since time.Time `json:"since,omitzero"`
	// Nonce is drawn at random for each change by a holder, so that a store that was
	// restored from a snapshot has no equal record under the same revision.
	Nonce string `json:"nonce,omitempty"`
	// Removed makes the holder give up the address and delete the record.
	Removed bool `json:"removed,omitempty"`
	// Announce is AnnounceBGP if all candidates have the address at the same time, and announce it to
	// routers. There is no holder then. Empty means that one node has it, and answers its neighbours.
	Announce string `json:"announce,omitempty"`
}

// GatewayObject is a router, a service or another object of the gateways of all nodes. Its key has the section
// of a file that it belongs to, e.g. http.routers, and its name.
type GatewayObject struct {
	// Spec is the object as package model/gateway has it. Unlike other records it is refused if it has unknown
	// fields: a middleware without one of them could let through what it shall stop.
	Spec json.RawMessage `json:"spec"`
	// Set is the name of the set of files that declares the object.
	Set string `json:"set,omitempty"`
}

// SelectedSandbox is a sandbox that a selector of the gateway's services has found on its node. Its key has the
// hash of the selector (SelectorHash), the node and the endpoint.
type SelectedSandbox struct {
	Address netip.Addr `json:"address"`
	// Draining gets no new requests or connections.
	Draining bool `json:"draining,omitempty"`
	// Down is why it gets none at all; empty if it gets some.
	Down string `json:"down,omitempty"`
}

// SelectorHash returns the part of a key that stands for a selector.
func SelectorHash(s model.Select) string {
	sum := sha256.Sum256(Encode(s))
	return hex.EncodeToString(sum[:8])
}

// AnnounceBGP is the value of Address.Announce for addresses that routers spread over all candidates.
const AnnounceBGP = "bgp"

// Candidate reports whether a node may have the address.
func (a Address) Candidate(node string) bool {
	return len(a.Candidates) == 0 || slices.Contains(a.Candidates, node)
}

// BGPPeer is a router to which nodes announce addresses.
type BGPPeer struct {
	Address netip.Addr `json:"address"`
	// AS is the router's autonomous system, LocalAS that of the nodes.
	AS      uint32 `json:"as"`
	LocalAS uint32 `json:"localAS"`
	// Nodes are the ids of the nodes that connect to it; empty means all.
	Nodes []string `json:"nodes,omitempty"`
	// BFD makes node and router notice within a second that the other is gone.
	BFD bool `json:"bfd"`
}

// Sealed is a value that only nodes can read, bound to the key of its record (trust.Box).
type Sealed struct {
	Sealed []byte `json:"sealed"`
}

// CertificateLock is held by the node that may change the values of a certificate, or an
// account. It is deleted when the node has done so.
type CertificateLock struct {
	// Holder is the id of the node.
	Holder string `json:"holder"`
	// Process is drawn at random by each process of the node.
	Process string `json:"process"`
	// Sequence grows while the holder works, and with each holder.
	Sequence int64 `json:"sequence"`
	// Interrupted is how many holders in a row have ended without deleting the lock.
	Interrupted int `json:"interrupted,omitempty"`
}

// Key joins a prefix and names. The names must contain no slash, except for the last.
func Key(prefix string, names ...string) string { return prefix + strings.Join(names, "/") }

// Names splits what follows the prefix in a key into n names.
func Names(prefix, key string, n int) []string {
	return strings.SplitN(strings.TrimPrefix(key, prefix), "/", n)
}

// Encode returns the value of a record.
func Encode[T any](v T) []byte {
	text, err := json.Marshal(v)
	if err != nil { // records contain nothing that JSON cannot express
		panic(fmt.Sprintf("encode record: %v", err))
	}
	return text
}

// Decode returns the record of an entry. Returns the zero value and an error if it is not valid on its own.
func Decode[T any](e kv.Entry) (v T, err error) {
	// A value whose decoding or check panics is new, and its caller gets an error.
	failed := recovery.Object("record "+e.Key, func() {
		if err = json.Unmarshal(e.Value, &v); err == nil {
			err = checkRecord(e.Key, v)
		}
	})
	if err = cmp.Or(failed, err); err != nil {
		return *new(T), fmt.Errorf("read record %s: %w", e.Key, err)
	}
	return v, nil
}

// Each returns the records below a prefix with their entries, in the order of their keys, without those that cannot be
// read.
func Each[T any](s kv.Snapshot, prefix string) iter.Seq2[kv.Entry, T] {
	return func(yield func(kv.Entry, T) bool) {
		for e := range s.Under(prefix) {
			if v, err := Decode[T](e); err == nil && !yield(e, v) {
				return
			}
		}
	}
}

// Get returns the record of a key, and whether it exists.
func Get[T any](s kv.Snapshot, key string) (v T, ok bool, err error) {
	e, ok := s.Get(key)
	if !ok {
		return v, false, nil
	}
	v, err = Decode[T](e)
	return v, err == nil, err
}
