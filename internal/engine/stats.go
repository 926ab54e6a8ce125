package engine

import (
	"context"

	"fairlead/internal/model"
	"fairlead/internal/proxy"
)

// Proxied returns what the proxy has forwarded, in total and for each listener.
// It returns false if no proxy runs or if its counters cannot be read.
func (e *Engine) Proxied(ctx context.Context) (model.ProxyStats, []proxy.ListenerStats, bool, error) {
	e.mu.Lock()
	p := e.proxy
	e.mu.Unlock()
	if p == nil {
		return model.ProxyStats{}, nil, false, nil
	}
	sum, err := p.Stats(ctx)
	if err != nil {
		return sum, nil, false, err
	}
	each, err := p.Listeners(ctx)
	return sum, each, err == nil, err
}
