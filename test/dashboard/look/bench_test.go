package look_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
	wanted "fairlead/internal/model/gateway"
	"fairlead/test/browser"

	"golang.org/x/sys/unix"
)

// large returns a daemon with ten thousand endpoints, publishes, real servers and routers.
func large(b *testing.B) *daemon {
	const n = 10_000
	d := newDaemon(b, plain)
	endpoint, publish, real := d.stats.Endpoints[0], d.stats.Publishes[0], d.services[0].Servers[0]
	view := d.views[0]
	view.Publishes = view.Publishes[:1]
	d.views, d.stats.Endpoints, d.stats.Publishes, d.services[0].Servers = nil, nil, nil, nil
	config := gatewayConfig(plain)
	for i := range n {
		name := fmt.Sprint("web-", i)
		view.Name, endpoint.Endpoint, publish.Endpoint, real.Endpoint = name, name, name, name
		publish.HostPorts = model.Port(uint16(10_000 + i))
		view.Publishes = []api.PublishedView{{Publish: publish.Publish}}
		real.Address = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		d.views, d.services[0].Servers = append(d.views, view), append(d.services[0].Servers, real)
		d.stats.Endpoints = append(d.stats.Endpoints, endpoint)
		d.stats.Publishes = append(d.stats.Publishes, publish)
		config.HTTP.Routers[name+"@docker"] = &wanted.Router{Rule: "Host(`" + name + ".example.com`)",
			Service: "shop@docker"}
	}
	d.gateway.Apply(config, nil)
	return d
}

// used returns the CPU time of this process, which has the dashboard, the fake daemon and the gateway.
func used() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// fetch returns the body of an address as a browser gets it: compressed if that is possible.
func fetch(b *testing.B, address string) []byte {
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.Fatal(answer.Status, err)
	}
	return text
}

var largePages = []string{"/", "/ports", "/services", "/flows", "/routers"}

// BenchmarkFirstView is a page of a host with ten thousand objects, from the server: its time and its size.
func BenchmarkFirstView(b *testing.B) {
	at := serveHost(b, large(b), plain)
	for _, path := range largePages {
		b.Run(path, func(b *testing.B) {
			fetch(b, at+path)
			n := 0
			for b.Loop() {
				n = len(fetch(b, at+path))
			}
			b.ReportMetric(float64(n), "compressed-B")
		})
	}
}

// BenchmarkFirstPaint is the time until a browser shows something of such a page, and the bytes that it has received
// for it. A task of the page that takes longer than 50 ms while it is updated is a long one.
func BenchmarkFirstPaint(b *testing.B) {
	at := serveHost(b, large(b), plain)
	chromium := browser.Start(b, nil)
	chromium.Page(b, desktop).Open(at + "/lab") // the first page of a new browser takes longer
	for _, path := range largePages {
		b.Run(path, func(b *testing.B) {
			var paint, sum, long float64
			var size int
			for b.Loop() {
				p := chromium.Page(b, desktop)
				p.Open(at + path)
				p.Wait(`performance.getEntriesByName("first-contentful-paint").length > 0`)
				p.Value(`performance.getEntriesByName("first-contentful-paint")[0].startTime`, &paint)
				p.Value(`performance.getEntries().reduce((n, e) => n + (e.transferSize || 0), 0)`, &size)
				p.Value(`new PerformanceObserver(l => document.body.dataset.long = Math.max(...l.getEntries().map(
					e => e.duration), document.body.dataset.long || 0)).observe({type: "longtask"})`, nil)
				p.Value(`new MutationObserver(() => document.body.dataset.updated = 1).observe(document.querySelector("#main"),
					{subtree: true, childList: true})`, nil)
				p.Wait(`document.body.dataset.updated`)
				p.Value(`+(document.body.dataset.long || 0)`, &long)
				sum += paint
			}
			b.ReportMetric(sum/float64(b.N), "first-paint-ms")
			b.ReportMetric(float64(size), "received-B")
			b.ReportMetric(long, "longest-task-ms")
		})
	}
}

// BenchmarkTenViewers is what ten open pages cost, with the readings of the daemon. All values are read at least once
// per minute.
func BenchmarkTenViewers(b *testing.B) {
	const length = time.Minute
	at := serveHost(b, large(b), plain)
	for _, path := range largePages {
		fetch(b, at+path)
	}
	var cpu time.Duration
	for b.Loop() {
		memory := heap()
		ctx, cancel := context.WithTimeout(b.Context(), length)
		before := used()
		for i := range 10 {
			go follow(ctx, at, largePages[i%len(largePages)], nil)
		}
		<-ctx.Done()
		cpu += used() - before
		b.ReportMetric(heap()-memory, "heap-MB")
		cancel()
	}
	b.ReportMetric(100*cpu.Seconds()/length.Seconds()/float64(b.N), "%-of-a-core")
}

// follow reads the stream of a page, and sends its lines to a channel, if there is one.
func follow(ctx context.Context, at, path string, lines chan<- string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/stream?page="+url.QueryEscape(path), nil)
	if err != nil {
		return
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	all := bufio.NewScanner(answer.Body)
	all.Buffer(nil, 1<<24)
	for all.Scan() {
		if lines != nil {
			lines <- all.Text()
		}
	}
}

// BenchmarkUpdate is how long a change of a real server of ten thousand takes to a viewer of the page, and what CPU
// time it costs in this process. Changes are two minutes apart.
func BenchmarkUpdate(b *testing.B) {
	d := large(b)
	at := serveHost(b, d, plain)
	for _, path := range []string{"/", "/services"} {
		b.Run(path, func(b *testing.B) {
			lines := make(chan string, 1<<16)
			go follow(b.Context(), at, path, lines)
			var took, cost time.Duration
			for i := 0; b.Loop(); i++ {
				quiet := time.After(2 * time.Minute)
				for waiting := true; waiting; {
					select {
					case <-lines:
					case <-quiet:
						waiting = false
					}
				}
				cause := fmt.Sprintf("cable %s %d was pulled", path, i)
				began, before := time.Now(), used()
				d.change(func() {
					s := d.services[0]
					s.Servers = slices.Clone(s.Servers)
					s.Servers[7000+i].State, s.Servers[7000+i].Cause = api.RealDown, cause
					d.services = append([]api.ServiceView{s}, d.services[1:]...)
				})
				for line := range lines {
					if strings.Contains(line, cause) {
						break
					}
				}
				took, cost = took+time.Since(began), cost+used()-before
			}
			b.ReportMetric(took.Seconds()/float64(b.N), "s-until-shown")
			b.ReportMetric(float64(cost.Milliseconds())/float64(b.N), "cpu-ms")
		})
	}
}
