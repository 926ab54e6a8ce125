package suite

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// The HTTP gateways. All of them forward to a sandbox of Fairlead's engine.
var (
	FairleadGateway = Peer{Name: "gateway-fairlead", Extends: true, Gateway: true, Changes: true}
	Nginx           = Peer{Name: "nginx", Extends: true, Gateway: true}
	HAProxyHTTP     = Peer{Name: "haproxy-http", Extends: true, Gateway: true}
	Traefik         = Peer{Name: "traefik", Extends: true, Gateway: true, Changes: true}
	Traefik2        = Peer{Name: "traefik2", Extends: true, Gateway: true, Changes: true}
	Caddy           = Peer{Name: "caddy", Extends: true, Gateway: true}
)

// gatewayPaths returns the paths on which a gateway forwards requests to the workload.
// The sandboxes are those of the path routed, so the gateway is the only difference.
func gatewayPaths() []Path {
	path := func(name, about string, p Peer, routers int) Path {
		return Path{Name: "gateway:" + name, About: about, Driver: model.DriverRouted, Peer: p, Others: routers}
	}
	return []Path{
		path("fairlead", "a server behind Fairlead's HTTP gateway", FairleadGateway, 0),
		path("nginx", "a server behind nginx", Nginx, 0),
		path("haproxy", "a server behind HAProxy in HTTP mode", HAProxyHTTP, 0),
		path("traefik", "a server behind Traefik 3", Traefik, 0),
		path("traefik2", "a server behind Traefik 2", Traefik2, 0),
		path("caddy", "a server behind Caddy", Caddy, 0),
		path("fairlead-100", "gateway:fairlead with 100 other routers", FairleadGateway, 100),
		path("fairlead-10k", "gateway:fairlead with 10,000 other routers", FairleadGateway, 10_000),
		path("traefik-10k", "gateway:traefik with 10,000 other routers", Traefik, 10_000),
	}
}

// Requests over HTTP. Those with rr in their names keep their connections, those with
// crr make a new one for each request. A number at the end is that of requests per
// second, which are then sent by a schedule.
var (
	httpRR    = Workload{Name: "http-rr", Spec: load.Spec{Workload: load.HTTPRR, Streams: 50}}
	httpsRR   = Workload{Name: "https-rr", Spec: load.Spec{Workload: load.HTTPRR, Streams: 50, TLS: true}}
	h2RR      = Workload{Name: "h2-rr", Spec: load.Spec{Workload: load.HTTPRR, Streams: 10, TLS: true, Multiplex: 10}}
	httpCRR   = Workload{Name: "http-crr", Spec: load.Spec{Workload: load.HTTPCRR, Streams: 50}}
	httpsCRR  = Workload{Name: "https-crr", Spec: load.Spec{Workload: load.HTTPCRR, Streams: 16, TLS: true}}
	wsRR      = Workload{Name: "ws-rr", Spec: load.Spec{Workload: load.WSRR, Streams: 50}}
	httpDown  = Workload{Name: "http-down", Spec: load.Spec{Workload: load.HTTPDown, Streams: 8}}
	httpUp    = Workload{Name: "http-up", Spec: load.Spec{Workload: load.HTTPUp, Streams: 8}}
	http5k, _ = atRate("http-rr-5k")

	// httpChanges is http-rr while the gateway's routers change.
	httpChanges = Workload{Name: "http-rr-changes", Spec: httpRR.Spec, Changes: 20}
	idleConns   = Workload{Name: result.IdleConns, Spec: load.Spec{Workload: load.HTTPIdle, Streams: 10_000}}
)

// maxRate is the greatest rate of a workload, in thousands of requests per second.
const maxRate = 1000

// atRate returns the workload http-rr-Nk or http-rr-changes-Nk, which sends N thousand
// requests per second.
func atRate(name string) (Workload, bool) {
	for _, w := range []Workload{httpRR, httpChanges} {
		digits, marked := strings.CutSuffix(strings.TrimPrefix(name, w.Name+"-"), "k")
		n, err := strconv.Atoi(digits)
		if !marked || err != nil || n < 1 || n > maxRate || name != fmt.Sprintf("%s-%dk", w.Name, n) {
			continue
		}
		w.Name, w.Spec.Rate = name, float64(n)*1000
		return w, true
	}
	return Workload{}, false
}

// gateway returns the suite about the cost of an HTTP gateway per request and per
// byte, and about its latency at a rate that all gateways can carry.
func gateway() Suite {
	s := Suite{
		Name:     "gateway",
		Question: "How much does an HTTP gateway cost, compared with other gateways and with the server alone?",
		Baseline: "routed", Paths: []string{"routed"},
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{httpRR, http5k, httpCRR, httpsRR, httpsCRR, h2RR, wsRR, httpDown, httpUp, idleConns},
		Rounds:    10, Duration: 2 * time.Second, Warmup: 500 * time.Millisecond,
	}
	for _, p := range gatewayPaths() {
		if p.Others == 0 {
			s.Paths = append(s.Paths, p.Name)
		}
	}
	return s
}
