package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/etcd"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/mirror"
	"fairlead/internal/daemon"
)

// newMember returns the membership of the host. A host whose membership cannot be read does not
// start: it would lose what came from the cluster.
func newMember(opt Options, d *daemon.Daemon, idle *idle) (*member.Member, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the name of the host: %w", err)
	}
	return member.New(member.Config{
		Dir: filepath.Join(opt.State, "cluster"), Version: opt.Version, Host: host, Open: storeOpener(opt),
		Listen: member.Listen, Dial: (&net.Dialer{}).DialContext, Attached: d.ClusterAttachments, Note: d.Note,
		Changed: idle.touch, Log: opt.Log, Now: time.Now,
	})
}

// storeOpener returns the function that connects to the store of a cluster. The snapshot is in a
// file beside the membership.
func storeOpener(opt Options) func(api.EtcdAccess, string, string, string) (member.Store, error) {
	return func(access api.EtcdAccess, cluster, id, dir string) (member.Store, error) {
		source, err := etcd.Open(etcd.Config{Access: access, Cluster: cluster})
		if err != nil {
			return nil, &api.Fault{Code: api.Invalid, Err: err}
		}
		m, err := mirror.Open(mirror.Config{Source: source, Path: filepath.Join(dir, "snapshot.db"), Cluster: id,
			Log: opt.Log})
		if err != nil {
			return nil, errors.Join(err, source.Close())
		}
		return m, nil
	}
}
