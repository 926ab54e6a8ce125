package proxy

import (
	"context"
	"slices"
	"sync"
	"time"

	"fairlead/internal/plan"
)

// predecessor is the proxy from which this one has taken over, as long as it has
// connections. It may be slow: it is stopped, or its machine is busy. Requests wait for
// it then, and their callers do not.
type predecessor struct {
	proxy *Proxy

	mu sync.Mutex
	// next is the request to send when the last one is answered.
	next *Config
	// idle is closed when all requests are answered; nil if none was sent.
	idle chan struct{}
}

// curtail makes the predecessor end the connections of all listeners that are not in
// cfg. It returns when the predecessor has done so, and after curtailLimit in any case.
func (p *predecessor) curtail(cfg Config) {
	p.mu.Lock()
	if p.next != nil {
		cfg = p.next.without(cfg)
	}
	p.next = &cfg
	if !p.busy() {
		p.idle = make(chan struct{})
		go p.send()
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(curtailLimit):
	}
}

// without returns the configuration without the listeners that are not in cfg: a
// listener that was removed meanwhile has lost its connections, even if it is there
// again.
func (c Config) without(cfg Config) Config {
	keep := make(map[plan.Listener]bool, len(cfg.Listeners))
	for _, l := range cfg.Listeners {
		keep[l] = true
	}
	return Config{Listeners: slices.DeleteFunc(slices.Clone(c.Listeners),
		func(l plan.Listener) bool { return !keep[l] })}
}

// send sends requests until all are answered or the predecessor has ended.
func (p *predecessor) send() {
	for {
		p.mu.Lock()
		cfg := p.next
		p.next = nil
		if cfg == nil {
			close(p.idle)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		// It fails only if the predecessor has ended, with all its connections.
		_, _ = p.proxy.call(context.Background(), request{Curtail: cfg})
	}
}

// pending reports whether a request is not answered yet.
func (p *predecessor) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy()
}

// busy is pending for those that have the lock.
func (p *predecessor) busy() bool {
	if p.idle == nil {
		return false
	}
	select {
	case <-p.idle:
		return false
	default:
		return true
	}
}
