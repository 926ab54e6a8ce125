package service

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"fairlead/internal/engine"
	"fairlead/internal/proxy"
)

// proxies starts and finds the proxy process, which survives the end of the daemon.
type proxies struct {
	at proxy.Keeping
	// ended gets an element when a proxy has ended.
	ended chan struct{}
}

func newProxies(run string, netns *os.File, log *slog.Logger) proxies {
	return proxies{
		at: proxy.Keeping{
			Socket: filepath.Join(run, "proxy.sock"), Errors: filepath.Join(run, "proxy.log"),
			Netns: netns, Log: log,
		},
		ended: make(chan struct{}, 1),
	}
}

// start returns a running proxy.
func (p proxies) start(ctx context.Context) (engine.Proxy, error) {
	made, err := proxy.Keep(ctx, p.at)
	if err != nil {
		return nil, err
	}
	go p.watch(made)
	return made, nil
}

// find returns the running proxy of an earlier daemon, or nil.
func (p proxies) find(ctx context.Context) (engine.Keeper, error) {
	found, err := proxy.Find(ctx, p.at)
	if err != nil || found == nil {
		return nil, err
	}
	go p.watch(found)
	return found, nil
}

// watch sends to ended when the proxy has ended.
func (p proxies) watch(one *proxy.Proxy) {
	<-one.Done()
	select {
	case p.ended <- struct{}{}:
	default: // ended has an element already
	}
}
