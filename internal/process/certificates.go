package process

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"fairlead/internal/cluster/certificates"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/mirror"
	"fairlead/internal/cluster/trust"
)

// clusterDir returns the directory of the host's part of a cluster.
func clusterDir(opt Options) string { return filepath.Join(opt.State, "cluster") }

// snapshotFile returns the file with the last snapshot of the cluster.
func snapshotFile(dir string) string { return filepath.Join(dir, "snapshot.db") }

// later is a node that does not exist yet when the gateway starts.
type later struct{ atomic.Pointer[node] }

// errLater is the error of a node that does not exist yet.
var errLater = fmt.Errorf("the daemon is starting: %w", kv.ErrUnavailable)

// Commit implements kv.Committer.
func (l *later) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	if n := l.Load(); n != nil {
		return n.Commit(ctx, t)
	}
	return kv.Result{}, errLater
}

// Peer implements certificates.Peers.
func (l *later) Peer(ctx context.Context, id, kind string, question, into any) error {
	if n := l.Load(); n != nil {
		return n.Member.Peer(ctx, id, kind, question, into)
	}
	return errLater
}

func (l *later) box() (*trust.Box, error) { return l.Load().Box(certificates.Purpose) }

// newCertificates returns the storage of certificates that the cluster shares. The gateway starts before the
// node, which adopt sets, and needs its certificates then.
func newCertificates(opt Options) (all *certificates.Certificates, adopt func(*node)) {
	var n later
	all = certificates.New(certificates.Config{Store: &n, Peers: &n, Box: n.box, Log: opt.Log,
		Recall: func() (certificates.Recalled, error) { return recall(clusterDir(opt)) }})
	return all, n.Store
}

// recall reads what an earlier process has left.
func recall(dir string) (r certificates.Recalled, err error) {
	r.Self, r.Box, err = member.Recall(dir, certificates.Purpose)
	if err != nil || r.Box == nil {
		return r, err
	}
	r.Snapshot, err = mirror.Read(snapshotFile(dir), r.Self.Cluster)
	return r, err
}
