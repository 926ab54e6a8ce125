package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"fairlead/internal/alarm"
	"fairlead/internal/engine"
	"fairlead/internal/proxy"
)

// proxies starts and finds the proxy process, which survives the end of the daemon.
type proxies struct {
	at proxy.Keeping
	// ended is sent when a proxy has ended.
	ended alarm.Signal
}

func newProxies(run string, netns *os.File, log *slog.Logger) proxies {
	return proxies{
		at: proxy.Keeping{
			Socket: filepath.Join(run, "proxy.sock"), Errors: filepath.Join(run, "proxy.log"),
			Netns: netns, Log: log,
		},
		ended: alarm.NewSignal(),
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
	p.ended.Send()
}

// removeEmpty ends the proxy of a daemon that publishes nothing any more, and
// removes its files. It keeps a log that is not empty.
func (p proxies) removeEmpty() error {
	found, err := proxy.Find(context.Background(), p.at)
	if err != nil {
		return err
	}
	if found != nil {
		if err := found.Close(); err != nil {
			return err
		}
	}
	if info, err := os.Stat(p.at.Errors); err != nil || info.Size() > 0 {
		return nil // it may never have started
	}
	if err := os.Remove(p.at.Errors); err != nil {
		return fmt.Errorf("remove the proxy's log: %w", err)
	}
	return nil
}
