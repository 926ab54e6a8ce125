package process

import (
	"context"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/agreement"
	"fairlead/internal/cluster/services"
	"fairlead/internal/daemon"
)

// unappliedLimit is how long etcd has to answer whether the cluster has a service.
const unappliedLimit = 2 * time.Second

// virtualServices are those of the daemon, with what the other nodes find. A service of the cluster that this host has
// not applied is not missing.
type virtualServices struct {
	*daemon.Daemon
	agreement *agreement.Agreement
	cluster   *services.Services
}

// Services implements admin.ServiceCalls.
func (v virtualServices) Services() []api.ServiceView { return v.agreement.Services() }

// Service implements admin.ServiceCalls.
func (v virtualServices) Service(name string) (api.ServiceView, error) {
	if err := v.unapplied(name); err != nil {
		return api.ServiceView{}, err
	}
	return v.agreement.Service(name)
}

// ChangeReal implements admin.ServiceCalls.
func (v virtualServices) ChangeReal(r api.RealRequest) (api.Result, error) {
	if err := v.unapplied(r.Service); err != nil {
		return api.Result{}, err
	}
	return v.Daemon.ChangeReal(r)
}

// RemoveService implements admin.ServiceCalls.
func (v virtualServices) RemoveService(name string, dry bool) (api.Result, error) {
	if err := v.unapplied(name); err != nil {
		return api.Result{}, err
	}
	return v.Daemon.RemoveService(name, dry)
}

// unapplied returns an error if the cluster has a service, and this host does not.
func (v virtualServices) unapplied(name string) error {
	if _, err := v.Daemon.Service(name); api.CodeOf(err) != api.NotFound {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), unappliedLimit)
	defer cancel()
	return v.cluster.Unapplied(ctx, name)
}
