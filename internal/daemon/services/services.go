// Package services has the virtual services of the host: it computes their pools, applies them with the engine, and
// follows what changes about their real servers while no request is made. Package pool decides which real servers a
// service has, package health checks them.
//
// The files in the order in which they use each other: count, services (the fields), notes, pools, changes, apply, view,
// gateway, health; then what changes services: requests, real, balancer, observe; then start, which creates them.
package services

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/daemon/networks"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/resets"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/daemon/step"
	"fairlead/internal/daemon/upstream"
	"fairlead/internal/engine"
	"fairlead/internal/health"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"
)

// Config contains what Services needs.
type Config struct {
	State     *state.State
	Steps     *step.Runner
	Networks  *networks.Networks
	Engine    *engine.Engine
	Resets    *resets.Queue
	Flows     engine.Flows
	Inspector engine.Inspector
	// LoadRecord reads the record of the host.
	LoadRecord func() (store.Record, error)
	// Applied records how long the engine took to apply a state, and its error.
	Applied func(took time.Duration, err error)
	// Lasting notes survive a reboot, Passing notes do not. If nil, none are saved.
	Lasting, Passing Notes
	// Containers reports events of containers that may be real servers; it may be nil.
	Containers Containers
	// CountReals reads the counters of real servers; it may be nil.
	CountReals stats.CountReals
	// DialReal is as in health.Options.
	DialReal func(model.VirtualService, model.RealServer) health.DialFunc
}

// Notes saves JSON values under keys. *store.Notes implements it.
type Notes interface {
	All() map[string]json.RawMessage
	Put(map[string]any) error
}

// Containers reports events of containers. sandbox.Finder implements it.
type Containers interface {
	// FollowContainers calls notify for each running container, and then for each
	// change, until ctx ends.
	FollowContainers(ctx context.Context, notify func(sandbox.ContainerEvent))
}

// Services computes and applies the pools of virtual services. Its methods expect that the mutex of the state is
// locked, which also protects its fields, unless they say something else.
type Services struct {
	cfg   Config
	state *state.State
	// ServersChanged receives a value when servers of the gateway may have changed. It needs no lock.
	ServersChanged alarm.Signal
	// health checks real servers. It needs no lock.
	health *health.Monitor
	// pools are the pools that the data planes have, by the services' names.
	pools map[string]*pool.Pool
	// drains are the drains of members.
	drains map[pool.Key]*pool.Drain
	// containers has the attached containers by the references of their attachments.
	containers map[string]pool.Container
	flows      *flowCounts
	// dirty has the services whose pools must be computed again.
	dirty map[string]bool
	// prepared are the services of the last call of Prepare.
	prepared []model.VirtualService
	// woken wakes balancer.run, and observed balancer.observe, which checks for passive checks again.
	woken, observed alarm.Signal
	// stuck says why the data planes still have an earlier state of a service.
	stuck map[string]string
	// transitions counts how often the checks have taken a member out or brought it
	// back.
	transitions map[pool.Key]uint64
	// unsaved says that the checks have results that are not saved.
	unsaved bool
	// savedHealth are the results of the checks that an earlier process has saved.
	savedHealth health.Snapshot
	// needed is closed by needOnce when there is a service.
	needed   chan struct{}
	needOnce sync.Once
	// batches are results of the checks that are not applied yet. batchMu protects
	// them, so that the checks never wait while something is applied. It is locked after the mutex of the state.
	batchMu sync.Mutex
	batches []health.Batch
}

// markDirty makes the balancer compute the services' pools again.
func (s *Services) markDirty(names ...string) {
	for _, name := range names {
		s.dirty[name] = true
	}
	s.woken.Send()
}

// updateServers makes the daemon compute the servers of the gateway again, and reports that the state has changed.
func (s *Services) updateServers() {
	s.ServersChanged.Send()
	s.state.Changed()
}

// NeedContainers makes the balancer follow containers, if there is a service, or if the
// gateway may select containers.
func (s *Services) NeedContainers(w model.Desired) {
	if len(w.Services) == 0 && !upstream.HasSelector(w.Gateway) && w.ClusterGateway == nil {
		return
	}
	s.needOnce.Do(func() { close(s.needed) })
}
