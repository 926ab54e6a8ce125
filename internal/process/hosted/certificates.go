package hosted

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"

	"fairlead/internal/gateway/acme"
	values "fairlead/internal/model/gateway"
)

// obtained are the certificates that the resolvers of some static settings obtain.
type obtained struct {
	manager *acme.Manager
	of      values.Static
	ctx     context.Context
	cancel  context.CancelFunc
	// ended is closed when no attempt runs any more. It is nil before start.
	ended chan struct{}
	// unfollow ends the changes of the cluster.
	unfollow func()
}

// Cluster is the host's part of the storage that the gateways of a cluster share.
type Cluster interface {
	acme.Shared
	// Follow calls changed with the keys of values that others have changed, until stop is called.
	// changed returns when the entry points use them.
	Follow(changed func(ctx context.Context, keys []string) error) (stop func())
}

// withStorages returns the resolvers with absolute paths of their storages, if they are files.
func (r *Runner) withStorages(all map[string]*values.Resolver) map[string]*values.Resolver {
	result := map[string]*values.Resolver{}
	for name, value := range all {
		copied := *value
		if !filepath.IsAbs(copied.Storage) && copied.Storage != values.StorageCluster {
			copied.Storage = filepath.Join(r.opt.State, copied.Storage)
		}
		result[name] = &copied
	}
	return result
}

// obtain makes the resolvers those of the static settings.
func (r *Runner) obtain(static values.Static) {
	if r.obtained != nil && reflect.DeepEqual(r.obtained.of, static) {
		return
	}
	r.stopObtaining()
	o := &obtained{of: static}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	changed := func(context.Context) error {
		result := make(chan error, 1)
		go func() { result <- r.certificatesChanged(o) }()
		select {
		case err := <-result:
			return err
		case <-o.ctx.Done(): // stopObtaining, which has locked mu, waits for the caller
			return o.ctx.Err()
		}
	}
	with := acme.Options{Static: static, Log: r.log, Changed: changed}
	known := make(chan struct{}) // o.manager is set
	o.unfollow = func() {}
	if r.opt.Cluster != nil {
		with.Shared = r.opt.Cluster
		o.unfollow = r.opt.Cluster.Follow(func(ctx context.Context, keys []string) error {
			<-known
			o.manager.Refresh(keys)
			if len(keys) == 0 {
				return nil
			}
			return changed(ctx)
		})
	}
	o.manager = acme.New(with)
	close(known)
	r.obtained = o
}

// start begins to obtain certificates. The serving process must have the configuration, so that
// it can answer challenges.
func (o *obtained) start() {
	if o.ended != nil {
		return
	}
	o.ended = make(chan struct{})
	go func() {
		defer close(o.ended)
		o.manager.Run(o.ctx)
	}()
}

// stopObtaining ends all attempts; they do not count as failed.
func (r *Runner) stopObtaining() {
	if r.obtained == nil {
		return
	}
	r.obtained.unfollow()
	r.obtained.cancel()
	if r.obtained.ended != nil {
		<-r.obtained.ended
	}
	r.obtained = nil
}

// errStopped is returned to an attempt whose resolvers are not in use any more.
var errStopped = errors.New("the gateway has other settings now")

// certificatesChanged applies the certificates and challenges, unless others are in use.
func (r *Runner) certificatesChanged(o *obtained) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.obtained != o || r.controller == nil {
		return errStopped
	}
	err := r.apply(context.Background(), r.static)
	if err != nil {
		r.log.Error("apply the certificates of resolvers", "error", err)
	}
	return err
}
