package hold

import (
	"context"
	"sync"
	"time"

	"fairlead/internal/cluster/kv"
)

// watchAgain is how long a Runner waits before it watches the links again after an error. It waits twice as
// long after each further one, up to watchAgainMax.
const (
	watchAgain    = 100 * time.Millisecond
	watchAgainMax = 10 * time.Second
)

// watch keeps the links known until ctx ends. While they are not, this host can have no address.
func (r *Runner) watch(ctx context.Context, links func(ctx context.Context, changed func()) error) {
	known := sync.OnceFunc(func() { close(r.ready) })
	for again := watchAgain; ctx.Err() == nil; again = min(2*again, watchAgainMax) {
		err := links(ctx, func() {
			again = watchAgain
			known()
			r.linksChanged("")
		})
		if err != nil {
			r.cfg.Log.Error("virtual addresses", "error", err)
			known()
			r.linksChanged(err.Error())
			kv.Wait(ctx, again)
		}
	}
}

// linksChanged shows the machines the state of the links. unwatched is why it is not known.
func (r *Runner) linksChanged(unwatched string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unwatched = unwatched
	if r.life == nil || r.snapshot == nil {
		return
	}
	for _, a := range r.sorted() {
		r.refresh(a)
	}
	r.settle()
}
