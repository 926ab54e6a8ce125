package leases

import (
	"context"
	"errors"
	"time"

	"fairlead/internal/lock"
)

// ReleasingError is the error of a step that removes attachments whose clients still release their leases. The step has
// changed nothing else.
type ReleasingError struct{ clients []*client }

// Error says what the step waits for.
func (*ReleasingError) Error() string {
	return "DHCP leases are still being released: repeat the request"
}

// Stop stops the clients of attachments, which release their leases. It does not wait. Returns a *ReleasingError unless
// all have done so, which belongs to the caller of Repeat.
func (cs *Clients) Stop(names ...string) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var waits []*client
	for _, name := range names {
		if c := cs.running[name]; c != nil {
			delete(cs.running, name)
			cs.ending[name] = c
			c.cancel()
		}
		switch c := cs.ending[name]; {
		case c == nil:
		case closed(c.done):
			delete(cs.ending, name)
		default:
			waits = append(waits, c)
		}
	}
	if len(waits) == 0 {
		return nil
	}
	return &ReleasingError{waits}
}

// StopAll stops all clients, as Stop does.
func (cs *Clients) StopAll() error {
	cs.mu.Lock()
	var names []string
	for name := range cs.running {
		names = append(names, name)
	}
	cs.mu.Unlock()
	return cs.Stop(names...)
}

// Repeat calls a step, and repeats it after the clients that it has stopped have released their leases, or have not for
// five seconds. Afterwards their attachments can have clients again.
func (cs *Clients) Repeat(step func() error) error {
	var stopped []*client
	defer func() { cs.permit(stopped) }()
	for {
		err := step()
		var releasing *ReleasingError
		if !errors.As(err, &releasing) {
			return err
		}
		stopped = append(stopped, releasing.clients...)
		cs.await(releasing.clients)
	}
}

// await waits until clients have ended.
func (cs *Clients) await(all []*client) {
	lock.Outside("the release of a DHCP lease")
	limit := time.NewTimer(releaseLimit)
	defer limit.Stop()
	for _, c := range all {
		select {
		case <-c.done:
			if c.ended != nil && !errors.Is(c.ended, context.Canceled) {
				cs.cfg.Log.Warn("release lease", "attachment", c.name, "error", c.ended)
			}
		case <-limit.C:
			cs.cfg.Log.Warn("release leases", "attachment", c.name, "error", "it takes too long: the lease will expire")
			cs.permit(all)
			return
		}
	}
}

// permit lets attachments have clients again.
func (cs *Clients) permit(stopped []*client) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range stopped {
		if cs.ending[c.name] == c {
			delete(cs.ending, c.name)
		}
	}
}
