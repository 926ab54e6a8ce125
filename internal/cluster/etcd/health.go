package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"fairlead/internal/api"
)

// statusLimit is how long a server has to describe itself.
const statusLimit = 2 * time.Second

// Servers asks each server how it is.
func (s *Store) Servers(ctx context.Context) []api.EtcdServer {
	servers := make([]api.EtcdServer, len(s.servers))
	var all sync.WaitGroup
	for i, at := range s.servers {
		all.Go(func() { servers[i] = s.describe(ctx, at) })
	}
	all.Wait()
	return servers
}

func (s *Store) describe(ctx context.Context, at server) api.EtcdServer {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	description := api.EtcdServer{Endpoint: at.url}
	var status *clientv3.StatusResponse
	err := at.connect(ctx) // Status would wait for a server that is down
	if err == nil {
		status, err = at.client.Status(ctx, at.url)
	}
	if err != nil {
		description.Problem = unanswered(err).Error()
		return description
	}
	if status.Leader == 0 {
		description.Problem = "it has no leader: " + noQuorum
	}
	description.Version, description.Size = status.Version, status.DbSize
	description.Leader = status.Leader == status.Header.MemberId
	description.Warnings = append(Warnings(status.Version), status.Errors...)
	return description
}

// faults are known faults of etcd that matter to a cluster, each with the first versions of 3.5 and
// of 3.6 without it.
var faults = []struct {
	fixed35, fixed36 int
	text             string
}{
	{33, 14, "a user can watch keys without permission"},
	{28, 9, "a server that was paused returns old values"},
	{23, 5, "a lease that has ended can be renewed"},
	{18, 0, "deletions can get lost when etcd compacts its history"},
	{13, 0, "a leader that was paused ends leases of running nodes"},
}

// Warnings names the known faults of a version of etcd, in one text.
func Warnings(version string) (warnings []string) {
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil || major != 3 || minor > 6 {
		return nil
	}
	var known []string
	for _, f := range faults {
		if minor < 5 || minor == 5 && patch < f.fixed35 || minor == 6 && patch < f.fixed36 {
			known = append(known, f.text)
		}
	}
	if len(known) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("etcd %s has known faults (%s): upgrade to 3.5.%d, 3.6.%d or newer", version,
		strings.Join(known, "; "), faults[0].fixed35, faults[0].fixed36)}
}
