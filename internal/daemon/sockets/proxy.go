// Package sockets changes the sockets of the proxy in a goroutine of its own, so that the daemon never waits for the
// proxy while it holds its mutex. It does not decide which sockets the proxy has.
//
// Theory of operation. A configuration whose sockets the proxy has already is recorded, and the goroutine sends the
// newest one. A configuration with other sockets must be in use before the kernel is changed, because a port may be
// taken: Set returns engine.UnopenedError, changes nothing, and the goroutine sends the configuration. When it has
// been answered, the daemon repeats its step from the start, and Set has the answer.
//
//	engine ──► Set: sockets are open ──► newest ───┐
//	           Set: UnopenedError ◄──► opening ──► goroutine ──► proxy
//
// Sockets that were opened for a step that is never repeated are closed after a while. A recorded configuration that
// the proxy refuses is sent again, after waits that grow, until the proxy has it or has ended.
package sockets

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/engine"
	"fairlead/internal/lock"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
)

// unusedLimit is how long sockets stay open that no step has used.
const unusedLimit = 5 * time.Second

// Config contains what Proxies needs.
type Config struct {
	// Start and Find are as in engine.Config.
	Start func(context.Context) (engine.Proxy, error)
	Find  func(context.Context) (engine.Keeper, error)
	// Report is called with the error when the proxy refuses a configuration that is in use, and with nil when it has
	// taken one again. It must not wait.
	Report func(error)
}

// Proxy is an engine.Keeper whose Set does not wait. Its methods may be called concurrently.
type Proxy struct {
	cfg  Config
	life context.Context
	end  context.CancelFunc
	// work receives a value when there is something to send.
	work alarm.Signal

	// mu protects the fields below. It is never held while the proxy is asked.
	mu sync.Mutex
	// real is nil until the first sockets are opened.
	real engine.Proxy
	// open is the configuration that the proxy has.
	open proxy.Config
	// wanted is the newest recorded configuration, with its number. sent is the number of the one that was sent
	// last, and failed its error.
	wanted      proxy.Config
	asked, sent uint64
	failed      error
	// retry is when the configuration is sent again that has failed.
	retry heal.Retry
	// opening is the last configuration with new sockets; nil if there is none.
	opening *opening
	// advanced is closed and replaced when something was sent.
	advanced chan struct{}
}

// opening is a configuration with new sockets.
type opening struct {
	config proxy.Config
	// after is the number of the configuration that was wanted when it was asked for.
	after uint64
	// done is closed when the proxy has answered, with the error, and used when the step has the answer: until
	// then no other step opens ports.
	done, used chan struct{}
	err        error
}

// New returns a Proxy whose process is started when the first sockets are opened. Close ends it.
func New(cfg Config) *Proxy {
	p := &Proxy{cfg: cfg, work: alarm.NewSignal(), advanced: make(chan struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	go p.run()
	return p
}

// Adopt returns a Proxy for a process that runs already.
func Adopt(ctx context.Context, real engine.Keeper, cfg Config) (*Proxy, error) {
	config, err := real.CurrentConfig(ctx)
	if err != nil {
		return nil, err
	}
	p := New(cfg)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.real, p.open, p.wanted = real, config, config
	return p, nil
}

// Set implements engine.Proxy. It does not wait.
func (p *Proxy) Set(_ context.Context, config proxy.Config) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.opening; o != nil && o.answered() && reflect.DeepEqual(o.config, config) {
		p.drop()
		if o.err != nil {
			return o.err
		}
	}
	o := p.opening
	if covers(p.open, config) {
		if o != nil && o.answered() {
			p.drop() // its ports are closed when the newest configuration is sent
		}
		p.wanted = config
		p.asked++
		p.work.Send()
		return nil
	}
	switch {
	case o == nil:
		o = &opening{config: config, after: p.asked, done: make(chan struct{}), used: make(chan struct{})}
		p.opening = o
		p.work.Send()
	case o.answered():
		return &engine.UnopenedError{Done: o.used} // another step's
	}
	return &engine.UnopenedError{Done: o.done}
}

// drop ends the opening.
func (p *Proxy) drop() {
	close(p.opening.used)
	p.opening = nil
}

// answered reports whether the proxy has answered.
func (o *opening) answered() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// run sends configurations until Close.
func (p *Proxy) run() {
	var unused, again <-chan time.Time
	for {
		select {
		case <-p.life.Done():
			return
		case <-p.work:
		case <-unused:
			p.discardUnused()
			unused = nil
		case <-again:
			p.resend()
		}
		for p.sendNext() {
			unused = time.After(unusedLimit)
		}
		again = p.nextRetry()
	}
}

// resend makes sendNext send the wanted configuration again. The ports of a process that has ended are not opened
// here: another process gets them.
func (p *Proxy) resend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil && p.asked == p.sent {
		p.asked++
	}
}

// nextRetry returns a channel that receives a value when a failed configuration is to be sent again; nil if there is
// none.
func (p *Proxy) nextRetry() <-chan time.Time {
	if p.Ended(p.life) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := p.retry.Next(0); wait > 0 {
		return time.After(wait)
	}
	return nil
}

// record records the result of sending the recorded configuration with this number, and reports the first failure and
// the end of failures.
func (p *Proxy) record(number uint64, err error) {
	failed := p.failed != nil
	if p.sent, p.failed = number, err; err == nil {
		p.retry.Succeeded()
	} else {
		p.retry.Failed()
	}
	if failed != (err != nil) && p.life.Err() == nil {
		p.cfg.Report(err)
	}
}

// Discard makes the proxy close the sockets for which a step has waited until done, unless a step has used them. It
// reports whether it did.
func (p *Proxy) Discard(done <-chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opening == nil || p.opening.done != done || !p.opening.answered() {
		return false
	}
	p.drop()
	p.asked++ // the wanted configuration is sent again
	p.work.Send()
	return true
}

// discardUnused is Discard of the sockets that no step has used for a while.
func (p *Proxy) discardUnused() {
	p.mu.Lock()
	opening := p.opening
	p.mu.Unlock()
	if opening != nil {
		p.Discard(opening.done)
	}
}

// sendNext sends what is to be sent, and reports whether there was something.
func (p *Proxy) sendNext() bool {
	p.mu.Lock()
	o, config, number := p.opening, p.wanted, p.asked
	opens := o != nil && !o.answered()
	if opens && o.after == number {
		config = o.config
	}
	if !opens && number == p.sent {
		p.mu.Unlock()
		return false
	}
	p.mu.Unlock()
	err := p.send(config)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.open = config
	}
	switch answered := p.opening; {
	case !opens && err == nil && answered != nil && answered.answered() &&
		answered.err == nil && !covers(config, answered.config):
		p.drop() // its ports are closed again: the step begins anew
	case opens && o.after == number:
		o.err = err
		close(o.done)
	case opens: // it was not sent: the step begins anew from another state
		close(o.done)
		p.drop()
	}
	if !opens || o.after != number {
		p.record(number, err)
	}
	close(p.advanced)
	p.advanced = make(chan struct{})
	return true
}

// send gives the process a configuration. It starts the process if there is none.
func (p *Proxy) send(config proxy.Config) error {
	p.mu.Lock()
	real := p.real
	p.mu.Unlock()
	if real == nil {
		var err error
		if real, err = p.cfg.Start(p.life); err != nil {
			return fmt.Errorf("start proxy: %w", err)
		}
		p.mu.Lock()
		p.real = real
		p.mu.Unlock()
	}
	return real.Set(p.life, config)
}

// Await waits until the proxy has what was set last. Returns an error if it does not answer within ten seconds.
func (p *Proxy) Await(ctx context.Context) error {
	lock.Outside("the proxy")
	limit := time.After(unusedLimit * 2)
	p.mu.Lock()
	number := p.asked
	p.mu.Unlock()
	for {
		p.mu.Lock()
		sent, failed, advanced := p.sent, p.failed, p.advanced
		p.mu.Unlock()
		if sent >= number {
			return failed
		}
		select {
		case <-advanced:
		case <-p.Done():
			return nil // another one gets the ports
		case <-p.life.Done():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("close host ports: %w", ctx.Err())
		case <-limit:
			return fmt.Errorf("close host ports: %w", engine.ErrSilentProxy)
		}
	}
}

// Asked returns the number of what was set last.
func (p *Proxy) Asked() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// CurrentConfig implements engine.Keeper. It does not wait.
func (p *Proxy) CurrentConfig(context.Context) (proxy.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, nil
}

// Done implements engine.Proxy. It returns nil while no process was started.
func (p *Proxy) Done() <-chan struct{} {
	if real := p.process(); real != nil {
		return real.Done()
	}
	return nil
}

// Ended implements engine.Proxy. It does not wait.
func (p *Proxy) Ended(context.Context) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

func (p *Proxy) process() engine.Proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.real
}

// Stats implements engine.Proxy. It waits for the proxy.
func (p *Proxy) Stats(ctx context.Context) (model.ProxyStats, error) {
	if real := p.process(); real != nil {
		return real.Stats(ctx)
	}
	return model.ProxyStats{}, nil
}

// Listeners implements engine.Proxy. It waits for the proxy.
func (p *Proxy) Listeners(ctx context.Context) ([]proxy.ListenerStats, error) {
	if real := p.process(); real != nil {
		return real.Listeners(ctx)
	}
	return nil, nil
}

// Close implements engine.Proxy. It waits for the end of a process that has not ended yet.
func (p *Proxy) Close() error {
	p.end()
	real := p.process()
	if real == nil {
		return nil
	}
	if p.Ended(context.Background()) {
		go func() { _ = real.Close() }()
		return nil
	}
	return real.Close()
}
