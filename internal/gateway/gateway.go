// Package gateway is the HTTP gateway: it accepts requests at entry points, finds the
// router of each, and sends them through middlewares to the servers of a service.
//
// Theory of operation. A configuration becomes an immutable snapshot; requests take
// the snapshot of the moment when they arrive, so a change never waits for requests,
// nor they for it. What must survive changes is kept apart by key: servers with their
// connections, their conditions in each service, and health checks. Faulty objects are
// left out alone, and their status has the reason.
//
// The packages below have an order, which test/arch holds. From the bottom: status, transport and observe know no other
// part; services uses them to divide requests between servers; snapshot has what one configuration needs; build makes
// snapshots; entries serves requests with the snapshot in use; explain says what it does with a request. This package
// connects them.
package gateway

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"fairlead/internal/gateway/build"
	"fairlead/internal/gateway/entries"
	"fairlead/internal/gateway/explain"
	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/services"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/gateway/view"
	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Gateway serves the requests of its entry points.
type Gateway struct {
	static   gateway.Static
	observer *observe.Observer
	services *services.Services
	current  snapshot.Current
	objects  *build.Objects
	points   *entries.Points
	tickets  *tlsconfig.Tickets
	// internal are its own services.
	internal map[string]http.Handler
	// console is nil without an API.
	console *console
	began   time.Time
}

// New returns a gateway that has no routers yet.
func New(static gateway.Static, log *slog.Logger) (*Gateway, error) {
	g := &Gateway{static: static, tickets: tlsconfig.NewTickets(), began: time.Now()}
	var err error
	if g.observer, err = observe.New(&g.static); err != nil {
		return nil, err
	}
	g.services = services.New(log, g.observer.Metrics)
	g.points = entries.New(&g.static, log, g.observer, &g.current, g.tickets)
	g.internal = g.internalServices()
	g.objects, err = build.New(build.Settings{Static: &g.static, Log: log, Observer: g.observer, Services: g.services,
		Current: &g.current, Internal: g.internal})
	return g, err
}

// AddDashboard makes the pages that api@internal and dashboard@internal show, if the settings enable them. Call it
// before Apply.
func (g *Gateway) AddDashboard(make func(Shown) Dashboard) {
	if g.console != nil && g.static.API.Dashboard && make != nil {
		g.console.dashboard = make(Shown{Base: g.console.prefix + pathDashboard, Read: g.console.read,
			Totals: g.Totals})
	}
}

// closeDashboard ends the streams of the dashboard, which would last as long as their clients want.
func (g *Gateway) closeDashboard() {
	if g.console != nil {
		g.console.close()
	}
}

// Apply replaces the configuration. known are the objects whose status is known
// already, such as routers with faulty labels. It returns the status of all objects.
// Objects that did not change stay as they are, with their state; the caller must not
// change the configuration or a part of it afterwards.
func (g *Gateway) Apply(config *gateway.Config, known []status.Status) []status.Status {
	return g.objects.Apply(config, known)
}

// Progress returns a number that grows while Apply works. It may be called concurrently: who waits for Apply
// sees whether it still works.
func (g *Gateway) Progress() uint64 { return g.objects.Progress() }

// Status returns the status of all objects.
func (g *Gateway) Status() []status.Status { return g.current.Load().Statuses }

// Totals returns the counters of all requests.
func (g *Gateway) Totals() metric.Totals { return g.observer.Metrics.Totals() }

// Serve serves the entry points until the context ends, and then until their requests
// have ended or the grace time is over. After Leave, it returns when the last connection
// has ended.
func (g *Gateway) Serve(ctx context.Context, sockets entries.Sockets) error {
	defer g.Close()
	ending, ended := context.WithCancel(ctx)
	defer ended()
	goroutine.Go("end the streams of the dashboard", func() {
		<-ending.Done()
		g.closeDashboard()
	})
	return g.points.Serve(ctx, sockets)
}

// Leave makes the gateway end when another process serves the same sockets: it accepts no
// connection any more and completes those that it has. Each gets one more response, with
// "Connection: close" (HTTP/2: GOAWAY); a connection without a request is closed after
// the grace time. Requests in progress and upgraded connections last as long as they
// need, or until Serve's context ends.
func (g *Gateway) Leave() {
	g.closeDashboard()
	g.points.Leave()
}

// Hurry makes a gateway that is about to end accept no more requests at once. Those that it
// has complete within the grace time.
func (g *Gateway) Hurry() { g.points.Hurry() }

// LogTo writes the access log to the file from now on, and closes the file before.
func (g *Gateway) LogTo(file *os.File) { g.observer.LogTo(file) }

// Close ends the checks, closes the connections to servers and completes the access log.
func (g *Gateway) Close() {
	g.closeDashboard()
	g.Apply(&gateway.Config{}, nil)
	g.observer.Flush()
}

// internalServices returns the gateway's own services.
func (g *Gateway) internalServices() map[string]http.Handler {
	all := map[string]http.Handler{"noop@internal": http.NotFoundHandler()}
	if g.static.API != nil {
		g.console = newConsole(view.Static{Static: &g.static, Began: g.began}, g.Objects, g.source)
		all["api@internal"] = http.HandlerFunc(g.console.serveAPI)
		all["dashboard@internal"] = http.HandlerFunc(g.console.serveDashboard)
	}
	if g.static.Ping != nil {
		all["ping@internal"] = http.HandlerFunc(g.points.Ping)
	}
	if g.static.Metrics != nil {
		all["prometheus@internal"] = promhttp.HandlerFor(g.observer.Metrics.Registry, promhttp.HandlerOpts{})
	}
	return all
}

// Objects returns all objects with their states.
func (g *Gateway) Objects() view.RawData {
	now := g.source()
	from := view.Source{Static: &g.static, Config: now.Config, Objects: slices.Clone(now.Statuses),
		Down: g.objects.Down, TCPDown: g.objects.TCPDown, Failures: g.objects.LastFailures,
		Certificates: now.Certificates()}
	for _, name := range slices.Sorted(maps.Keys(g.internal)) {
		from.Objects = append(from.Objects, status.Status{Kind: "service", Name: name, State: status.Enabled})
	}
	return view.Of(from)
}

// source returns what explanations are about.
func (g *Gateway) source() explain.Source {
	return explain.Source{Snapshot: g.current.Load(), Static: &g.static, Down: g.objects.Down,
		Failures: g.objects.LastFailures}
}

// Explain says which router a request takes that arrives at the entry point, as explain.Source does.
func (g *Gateway) Explain(entry, method, text string) (shown.Answer, error) {
	return g.source().Explain(entry, method, text)
}
