package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
)

// slowProxy opens ports only when the test lets it, and takes nothing after it has ended.
type slowProxy struct {
	noProxy
	opens, ended bool
	has          proxy.Config
}

func (p *slowProxy) Set(_ context.Context, c proxy.Config) error {
	if p.ended {
		return errors.New("the proxy has ended")
	}
	if len(c.Listeners) > 0 && !p.opens {
		return &engine.UnopenedError{}
	}
	p.has = c
	return nil
}

func (p *slowProxy) Ended(context.Context) bool { return p.ended }

// TestChangesWhileAProxyIsReplaced: what happens while HealProxy waits for the ports of the next proxy.
func TestChangesWhileAProxyIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*testing.T, *engine.Engine, *slowProxy, model.State)
		ports   int
	}{
		"the next proxy ends, too, and another one is not started at once": {func(t *testing.T, e *engine.Engine,
			p *slowProxy, _ model.State) {
			p.ended = true
			if _, err := e.HealProxy(t.Context()); err == nil || errors.As(err, new(*engine.UnopenedError)) {
				t.Errorf("two proxies have ended, one after the other: %v", err)
			}
		}, 1},
		"the next proxy ends, too, and the port is not published any more": {func(t *testing.T, e *engine.Engine,
			p *slowProxy, s model.State) {
			p.ended, s.Publishes = true, nil
			if _, err := e.Set(t.Context(), s); err != nil {
				t.Error(err)
			}
		}, 0},
		"the port is not published any more, and the proxy has opened it": {func(t *testing.T, e *engine.Engine,
			p *slowProxy, s model.State) {
			p.has.Listeners, p.opens, s.Publishes = []plan.Listener{{}}, true, nil
			if _, err := e.Set(t.Context(), s); err != nil {
				t.Error(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			host, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd()), kernel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			newest, opens := (*slowProxy)(nil), true
			e := engine.New(engine.Config{Kernel: host, Flows: host, Inspector: host, Store: &store.Memory{},
				StartProxy: func(context.Context) (engine.Proxy, error) {
					newest = &slowProxy{opens: opens}
					return newest, nil
				}})
			s := dual(t, w, model.DriverBridge, "web")
			publish(&s, "web", model.ViaProxy, model.TCP, 8080, 80)
			if _, err := e.Set(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			newest.ended, opens = true, false
			if _, err := e.HealProxy(t.Context()); !errors.As(err, new(*engine.UnopenedError)) {
				t.Fatalf("the next proxy is started: %v", err)
			}
			opens = true
			c.happens(t, e, newest, s)
			if _, err := e.HealProxy(t.Context()); err != nil {
				t.Error(err)
			}
			if got := len(newest.has.Listeners); got != c.ports {
				t.Errorf("the proxy listens on %d ports, want %d", got, c.ports)
			}
			if err := e.TearDown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
