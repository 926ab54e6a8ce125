package hosted

import (
	"context"
	"errors"
	"os"
	"time"

	"fairlead/internal/gateway/serving"
	"fairlead/internal/gateway/status"
	values "fairlead/internal/model/gateway"
	"fairlead/internal/process/standalone"

	"golang.org/x/sys/unix"
)

const (
	// stopLimit is how long requests in progress have when the gateway ends.
	stopLimit = 10 * time.Second
	// endPatience is how long Run waits for that: the daemon answers no other request meanwhile.
	endPatience = time.Second
	// portPatience is the pause before a port is tried again that an ending gateway still has.
	portPatience = 50 * time.Millisecond
)

// stop ends the serving process, also one that an earlier daemon has left. If its requests take
// longer, they go on after stop has returned.
func (r *Runner) stop() error {
	r.stopDocker()
	r.stopObtaining()
	r.sources, r.cluster = map[string]standalone.Source{}, nil
	r.setFiles(nil)
	c := r.controller
	r.controller = nil
	if _, none := os.Stat(r.opt.Directory); c == nil && (none != nil || r.isEnding()) {
		return nil
	}
	ended := make(chan struct{})
	r.ending = ended
	var err error // of the goroutine, until it has ended
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if c != nil {
			c.Stop(ctx)
		} else if err = serving.End(ctx, serving.Options{Directory: r.opt.Directory, Netns: r.opt.Netns,
			Log: r.log}); err != nil {
			r.log.Warn("end the gateway of an earlier daemon", "error", err)
		}
		close(ended)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.removeFiles()
	}()
	select {
	case <-ended:
		r.removeFiles()
		return err
	case <-time.After(endPatience):
		r.log.Info("the gateway ends when its requests have ended", "limit", stopLimit)
		return nil
	}
}

// isEnding reports whether a gateway completes its requests.
func (r *Runner) isEnding() bool {
	if r.ending == nil {
		return false
	}
	select {
	case <-r.ending:
		return false
	default:
		return true
	}
}

// removeFiles removes the files of a gateway that has ended, unless another one runs.
func (r *Runner) removeFiles() {
	if r.controller != nil {
		return
	}
	if r.errors != nil {
		_ = r.errors.Close()
		r.errors = nil
	}
	_ = os.Remove(r.opt.Directory) // it may not exist, and may have files of others
	if info, failed := os.Stat(r.opt.Errors); failed == nil && info.Size() == 0 {
		_ = os.Remove(r.opt.Errors)
	}
}

// start starts the serving process. One that ends has its ports a moment longer.
func (r *Runner) start(ctx context.Context, with serving.Options, static values.Static, config *values.Config,
	known []status.Status) (*serving.Controller, []status.Status, error) {
	for {
		ending := r.isEnding()
		c, statuses, err := serving.Start(ctx, with, static, config, known)
		if !errors.Is(err, unix.EADDRINUSE) || !ending {
			return c, statuses, err
		}
		select {
		case <-r.ending:
		case <-time.After(portPatience):
		case <-ctx.Done():
			return c, statuses, err
		}
	}
}
