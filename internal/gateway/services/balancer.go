package services

import (
	"log/slog"
	"net/http"
	"slices"
	"time"

	"fairlead/internal/balance/wrr"
	"fairlead/internal/gateway/condition"
	"fairlead/internal/gateway/forwarded"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/sticky"
	"fairlead/internal/gateway/transport"
	"fairlead/internal/model/gateway"
)

// balancer is the handler of a service whose requests are divided between servers.
type balancer struct {
	service  string
	places   []*place
	next     func(r *http.Request) *place
	cookie   *gateway.Cookie
	passHost bool
	passive  *condition.Passive
	// watches: the outcomes of requests are recorded.
	watches bool
	log     *slog.Logger
	turns   *wrr.Turns
	// open counts the requests in progress. It is nil if the metrics lack them.
	open *metric.Open
}

// of returns the server of the client's session, nil if it has none that is up.
func (b *balancer) of(w http.ResponseWriter, r *http.Request) *place {
	c, err := r.Cookie(b.cookie.Name)
	if err != nil {
		return nil
	}
	for _, p := range b.places {
		if slices.Contains(p.cookies, c.Value) && p.IsUp() {
			sticky.Renew(w, b.cookie, c.Value, p.cookies[0])
			return p
		}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p *place
	if b.cookie != nil {
		p = b.of(w, r)
	}
	if p == nil {
		if p = b.choose(r); p == nil {
			unavailable(w)
			return
		}
		if b.cookie != nil {
			sticky.Set(w, b.cookie, p.cookies[0])
		}
	}
	b.serve(w, r, p)
}

// unavailable answers that no server is up, for example because all are starting still.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
}

// choose returns the server for the request: another one than those that the middleware
// retry has tried, if there is one.
func (b *balancer) choose(r *http.Request) *place {
	p := b.next(r)
	attempt := outcome.AttemptOf(r)
	if p == nil || attempt == nil || !slices.Contains(attempt.Tried, p.key) {
		return p
	}
	for _, other := range b.usable() {
		if !slices.Contains(attempt.Tried, other.key) {
			return other
		}
	}
	return p
}

// mostAttempts is how many servers a request is sent to at most.
const mostAttempts = 3

// serve sends the request to the server, and to others as long as it fails and nothing
// is lost by that: the server cannot have begun to work on it, or the method is
// idempotent.
func (b *balancer) serve(w http.ResponseWriter, r *http.Request, p *place) {
	attempt := outcome.AttemptOf(r)
	var tried [mostAttempts]*place
	for n := 0; ; n++ {
		tried[n] = p
		attempt.Use(p.key)
		err := b.send(w, r, p)
		if err == nil {
			return
		}
		fault, e := faultOf(r, err), transport.AsError(err)
		if fault == outcome.ServerFault {
			p.Record(e, time.Now())
		}
		p = nil
		if fault != outcome.ClientFault {
			attempt.Fail(e.Sent)
			if n+1 < mostAttempts && e.Repeatable(r.Method) && !isTimeout(err) {
				p = b.other(tried[:n+1])
			}
		}
		if p == nil {
			b.log.Debug("a request cannot be forwarded", "service", b.service, "server", tried[n].url.Host,
				"method", r.Method, "attempts", n+1, "error", err)
			failed(w, r, err, fault)
			return
		}
	}
}

// other returns a server that was not tried, nil if there is none.
func (b *balancer) other(tried []*place) *place {
	for _, p := range b.usable() {
		if !slices.Contains(tried, p) {
			return p
		}
	}
	return nil
}

// send forwards the request to the server.
func (b *balancer) send(w http.ResponseWriter, r *http.Request, p *place) error {
	host := r.Host
	if !b.passHost {
		host = p.url.Host
	}
	x := observe.ExchangeOf(w)
	before, had := r.Header[forwarded.For]
	forwarded.AppendClient(r, forwarded.Peer(r.RemoteAddr))
	began := time.Now()
	if p.pending.Add(1); x != nil { // copies of requests have none
		x.Send(b.service, p.url, b.open)
	}
	defer func() { // a response that breaks off ends in a panic
		if r.Header[forwarded.For] = before; !had {
			delete(r.Header, forwarded.For)
		}
		if p.pending.Add(-1); x != nil {
			x.Sent(b.open, time.Since(began))
		}
	}()
	return b.forward(w, x, r, p, host, began)
}

// forward sends the request to the server, and records the outcome if later requests or the
// access log need it.
func (b *balancer) forward(w http.ResponseWriter, x *observe.Exchange, r *http.Request, p *place, host string,
	began time.Time) error {
	seen := x.Watch(w, r, began, b.watches)
	if seen == nil {
		return p.forward.Forward(w, p.addressed(r), host)
	}
	err := p.forward.Forward(seen, p.addressed(r), host)
	if b.watches {
		b.learn(p, r, seen, err)
	}
	return err
}

// learn records the outcome of a request for the choice of later ones. One that fails by another's fault
// than the server's says nothing about the server.
func (b *balancer) learn(p *place, r *http.Request, seen *observe.Response, err error) {
	fault := faultOf(r, err)
	if fault == outcome.ClientFault || fault == outcome.GatewayFault || r.Context().Err() != nil {
		return
	}
	now := time.Now()
	if seen.First > 0 {
		p.pace.Add(seen.First, now)
	}
	switch {
	case b.passive == nil:
	case fault == outcome.NoFault && seen.Status < http.StatusInternalServerError:
		p.Succeed()
	case p.Fail(b.passive, now):
		b.log.Info("server is taken out after failed requests", "service", b.service,
			"server", gateway.ShownURL(p.url.String()), "for", b.passive.Window)
	}
}

func (b *balancer) usable() []*place {
	up := make([]*place, 0, len(b.places))
	for _, p := range b.places {
		if p.weight > 0 && !p.fenced && p.IsUp() {
			up = append(up, p)
		}
	}
	return up
}

// failed answers a request that could not be forwarded. If the response has begun,
// only the end of its connection shows the client that it is truncated.
func failed(w http.ResponseWriter, r *http.Request, err error, fault outcome.Fault) {
	x := observe.ExchangeOf(w)
	if x != nil {
		x.SetFault(fault)
	}
	if x != nil && x.Begun() || transport.AsError(err).Started {
		panic(http.ErrAbortHandler)
	}
	status := statusOf(r, err)
	text := http.StatusText(status)
	if status == wire.StatusClientClosedRequest {
		text = "Client Closed Request"
	}
	http.Error(w, text, status)
}
