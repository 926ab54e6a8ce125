package gateway_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"fairlead/internal/gateway"
	model "fairlead/internal/model/gateway"
)

// manyRouters returns a configuration with n routers, each with a host, a middleware and
// a service of its own.
func manyRouters(n int) model.HTTP {
	config := model.HTTP{Routers: map[string]*model.Router{}, Services: map[string]*model.Service{},
		Middlewares: map[string]*model.Middleware{}}
	for i := range n {
		name := fmt.Sprintf("app-%d@docker", i)
		config.Routers[name] = &model.Router{Rule: fmt.Sprintf("Host(`app-%d.example.com`)", i), Service: name,
			Middlewares: []string{name}}
		config.Services[name] = serviceOf(fmt.Sprintf("http://10.%d.%d.2:8080", i/256, i%256))
		config.Middlewares[name] = &model.Middleware{StripPrefix: &model.StripPrefix{Prefixes: []string{"/app"}}}
	}
	return config
}

// BenchmarkChange changes the service of one of 10,000 routers, as a new container does.
func BenchmarkChange(b *testing.B) {
	g := benchGateway(b)
	config := manyRouters(10_000)
	g.Apply(&model.Config{HTTP: config}, nil)
	n := 0
	for b.Loop() {
		n++
		next := config
		next.Services = maps.Clone(config.Services)
		next.Services["app-77@docker"] = serviceOf(fmt.Sprintf("http://10.99.%d.%d:8080", n/256%256, n%256))
		g.Apply(&model.Config{HTTP: next}, nil)
	}
}

// BenchmarkChangeDecoded is BenchmarkChange with all values decoded anew.
func BenchmarkChangeDecoded(b *testing.B) {
	g := benchGateway(b)
	g.Apply(&model.Config{HTTP: manyRouters(10_000)}, nil)
	n := 0
	for b.Loop() {
		b.StopTimer()
		n++
		next := manyRouters(10_000)
		next.Services["app-77@docker"] = serviceOf(fmt.Sprintf("http://10.99.%d.%d:8080", n/256%256, n%256))
		b.StartTimer()
		g.Apply(&model.Config{HTTP: next}, nil)
	}
}

// BenchmarkRoutersMemory reports the memory of 10,000 routers.
func BenchmarkRoutersMemory(b *testing.B) {
	for b.Loop() {
		g := benchGateway(b)
		before := liveHeap()
		g.Apply(&model.Config{HTTP: manyRouters(10_000)}, nil)
		b.ReportMetric(float64(liveHeap()-before)/1e6, "MB")
		runtime.KeepAlive(g)
	}
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkRequest is a request through a gateway with one or many routers. The service
// has no server, so nothing but the gateway's own work is measured.
func BenchmarkRequest(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := benchGateway(b)
			config := manyRouters(n)
			for _, s := range config.Services {
				s.LoadBalancer.Servers = nil
			}
			g.Apply(&model.Config{HTTP: config}, nil)
			h, err := g.Handler("web")
			if err != nil {
				b.Fatal(err)
			}
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("http://app-%d.example.com/app/x", n/2), nil)
			header := r.Header.Clone()
			b.ReportAllocs()
			for b.Loop() {
				clear(r.Header)
				maps.Copy(r.Header, header)
				h.ServeHTTP(w, r)
				w.Body.Reset()
			}
			if w.Code != http.StatusServiceUnavailable {
				b.Errorf("status %d", w.Code)
			}
		})
	}
}

// BenchmarkCountedRequest is a request to a server, with and without metrics.
func BenchmarkCountedRequest(b *testing.B) {
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Cleanup(backend.Close)
	for name, metrics := range map[string]*model.Metrics{"uncounted": nil, "counted": {EntryPoint: "web"}} {
		b.Run(name, func(b *testing.B) {
			g := benchGatewayWith(b, model.Static{Metrics: metrics})
			g.Apply(&model.Config{HTTP: model.HTTP{
				Routers:  map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
				Services: map[string]*model.Service{"s@file": serviceOf(backend.URL)}}}, nil)
			h, err := g.Handler("web")
			if err != nil {
				b.Fatal(err)
			}
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "http://a.test/", nil)
			header := r.Header.Clone()
			b.ReportAllocs()
			for b.Loop() {
				clear(r.Header)
				maps.Copy(r.Header, header)
				h.ServeHTTP(w, r)
			}
			if w.Code != http.StatusOK {
				b.Errorf("status %d", w.Code)
			}
		})
	}
}

func benchGateway(b *testing.B) *gateway.Gateway {
	b.Helper()
	return benchGatewayWith(b, model.Static{})
}

func benchGatewayWith(b *testing.B, static model.Static) *gateway.Gateway {
	b.Helper()
	static.EntryPoints, static.Default = []model.EntryPoint{{Name: "web"}}, []string{"web"}
	g, err := gateway.New(static, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(g.Close)
	return g
}
