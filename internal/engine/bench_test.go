package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
	"fairlead/test/features"
)

// noProxy binds no ports, so that only the engine's and the kernel's time is
// measured.
type noProxy struct{}

func (noProxy) Set(context.Context, proxy.Config) error                  { return nil }
func (noProxy) Stats(context.Context) (model.ProxyStats, error)          { return model.ProxyStats{}, nil }
func (noProxy) Listeners(context.Context) ([]proxy.ListenerStats, error) { return nil, nil }
func (noProxy) Ended(context.Context) bool                               { return false }
func (noProxy) Done() <-chan struct{}                                    { return nil }
func (noProxy) Close() error                                             { return nil }
func withoutPorts(context.Context) (engine.Proxy, error)                 { return noProxy{}, nil }

// BenchmarkPublish adds the publishes in one Set and removes them in another.
// The variants without the proxy do not reserve ports.
func BenchmarkPublish(b *testing.B) {
	for _, c := range []struct {
		via     model.Via
		proxied bool
	}{{model.ViaNAT, true}, {model.ViaNAT, false}, {model.ViaEBPF, true}} {
		for name, publishes := range benchPublishes(c.via) {
			b.Run(fmt.Sprintf("%s/%s/proxy=%v", c.via, name, c.proxied), func(b *testing.B) {
				w := world(b)
				e := benchEngine(b, w, c.proxied)
				s := dual(b, w, model.DriverBridge, "web")
				// The proxy and the programs are running, as on any host
				// with a publish.
				publish(&s, "web", model.ViaProxy, model.UDP, 7, 7)
				publish(&s, "web", c.via, model.UDP, 9, 9)
				with := s
				with.Publishes = slices.Concat(s.Publishes, publishes)
				set(b, e, s)
				var spent, undone []time.Duration
				for b.Loop() {
					spent = append(spent, set(b, e, with))
					undone = append(undone, set(b, e, s))
				}
				perOp(b, spent, "publish")
				perOp(b, undone, "unpublish")
			})
		}
	}
}

// benchPublishes returns the publishes of each benchmark, by its name.
func benchPublishes(via model.Via) map[string][]model.Publish {
	ports := func(first, n int) model.PortRange {
		return model.PortRange{First: uint16(first), Last: uint16(first + n - 1)}
	}
	one := func(proto model.Proto, host, target model.PortRange) []model.Publish {
		return []model.Publish{{Endpoint: "web", Via: via, Proto: proto, HostPorts: host, Ports: target}}
	}
	var singles []model.Publish
	for i := range 10000 {
		singles = append(singles, one(model.TCP, ports(20000+i, 1), ports(80, 1))...)
	}
	return map[string][]model.Publish{
		"1":                     one(model.TCP, ports(8000, 1), ports(80, 1)),
		"range of 1000":         one(model.TCP, ports(8000, 1000), ports(8000, 1000)),
		"UDP range of 1000":     one(model.UDP, ports(8000, 1000), ports(8000, 1000)),
		"shifted range of 1000": one(model.TCP, ports(8000, 1000), ports(9000, 1000)),
		"10000 singles":         singles,
	}
}

// BenchmarkAttach adds one endpoint to a network that has some.
func BenchmarkAttach(b *testing.B) {
	for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		b.Run(string(d), func(b *testing.B) {
			w := world(b)
			e := benchEngine(b, w, true)
			s := dual(b, w, d, "a", "b", "c", "web")
			before := s
			before.Endpoints = s.Endpoints[:3]
			set(b, e, before)
			var spent, undone []time.Duration
			for b.Loop() {
				spent = append(spent, set(b, e, s))
				undone = append(undone, set(b, e, before))
			}
			perOp(b, spent, "attach")
			perOp(b, undone, "detach")
		})
	}
}

func benchEngine(b *testing.B, w *topology.World, proxied bool) *engine.Engine {
	b.Helper()
	if proxied {
		return w.Engine
	}
	facts := features.Facts(b)
	host, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd()), kernel.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { host.Close() })
	return engine.New(engine.Config{Kernel: host, Flows: host, Inspector: host, Store: &store.Memory{}, Facts: facts,
		StartProxy: withoutPorts})
}

func set(b *testing.B, e *engine.Engine, s model.State) time.Duration {
	start := time.Now()
	if _, err := e.Set(context.Background(), s); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// perOp reports the median and the minimum. On a machine that also does other
// work, the minimum is nearer to the true cost.
func perOp(b *testing.B, took []time.Duration, what string) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "ms/"+what)
	b.ReportMetric(ms(took[0]), "least-ms/"+what)
}
