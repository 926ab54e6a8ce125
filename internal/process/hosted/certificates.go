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
}

// withStorages returns the resolvers with absolute paths of their storages.
func (r *Runner) withStorages(all map[string]*values.Resolver) map[string]*values.Resolver {
	result := map[string]*values.Resolver{}
	for name, value := range all {
		copied := *value
		if !filepath.IsAbs(copied.Storage) {
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
	o.manager = acme.New(acme.Options{Static: static, Log: r.log, Changed: func(context.Context) error {
		result := make(chan error, 1)
		go func() { result <- r.certificatesChanged(o) }()
		select {
		case err := <-result:
			return err
		case <-o.ctx.Done(): // stopObtaining, which has locked mu, waits for the caller
			return o.ctx.Err()
		}
	}})
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
