package entries

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1"
	"fairlead/internal/gateway/h2"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/model/gateway"
)

// listen returns the servers of an entry point: our own for HTTP/1.1, the library's for
// HTTP/2.
func (p *Points) listen(value gateway.EntryPoint, sockets Socket) (*listening, error) {
	e, err := p.Handler(value)
	if err != nil {
		return nil, fmt.Errorf("entry point %s: %w", value.Name, err)
	}
	l, handler := sockets.TCP, advertised(value, sockets.TCP, e)
	times := value.Timeouts.Limits(p.Defaults)
	patience := cmp.Or(times.Read, p.Defaults.Read) // slow clients must not hold connections before a request
	at := &listening{name: value.Name, accept: newAccepting(l, &p.open)}
	at.http1 = &h1.Server{Handler: handler, MaxHeaderBytes: headLimit(value), HeaderTimeout: patience,
		IdleTimeout: times.Idle, ReadTimeout: times.Read, WriteTimeout: times.Write,
		MaxRequests: value.MaxRequests, MaxAge: value.MaxAge, Panicked: p.panicked}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	open := p.observer.Metrics.Connections.WithLabelValues(value.Name, "TCP")
	limits := p.newLimits(value, e.forwarding.Trusts)
	ages := h2.Aging{Handler: handler, MaxRequests: value.MaxRequests, MaxAge: value.MaxAge, Leaves: p.last.Load}
	at.http2 = &http.Server{Handler: h2.NewPacer(ages, times.Read, times.Write),
		Protocols: protocols, MaxHeaderBytes: headLimit(value), ReadHeaderTimeout: patience,
		WriteTimeout: h2.WholeResponse(times.Write), IdleTimeout: times.Idle,
		ErrorLog: p.errorLog(), HTTP2: http2Limits(value),
		ConnContext: ages.Context,
		ConnState: func(c net.Conn, state http.ConnState) {
			goroutine.Do("count a connection", func() { p.count(open, c.(*admitted), state) })
		},
	}
	at.streams = stream.NewEntry(func() *stream.Routes { return p.current.Load().Streams[value.Name] }, open)
	at.streams.TLS.GetConfigForClient = p.current.Strictly(value, at.streams.TLS.GetConfigForClient)
	p.tickets.Use(at.streams.TLS)
	at.split = &splitter{accepting: at.accept, config: p.serverTLS(value), patience: patience, limits: limits,
		stream: at.streams.Take,
		http1: func(c net.Conn, heard, ended func()) {
			open.Inc()
			at.http1.ServeConn(c, heard, func() {
				open.Dec()
				ended()
			})
		}}
	if at.split.proxied, err = stream.Proxied(value); err != nil {
		return nil, fmt.Errorf("entry point %s: %w", value.Name, err)
	}
	if value.HTTP3 != nil && sockets.UDP != nil {
		if at.http3, err = p.listenHTTP3(value, sockets.UDP, e, limits); err != nil {
			return nil, fmt.Errorf("entry point %s: serve HTTP/3: %w", value.Name, err)
		}
	}
	at.split.start()
	return at, nil
}

// Serve serves the entry points until the context ends, and then until their requests
// have ended or the grace time is over. After Leave, it returns when the last connection
// has ended.
func (p *Points) Serve(ctx context.Context, sockets Sockets) error {
	var all []*listening
	var running goroutine.Group
	failed := make(chan error, len(sockets))
	for _, value := range p.static.EntryPoints {
		l := sockets[value.Name].TCP
		if l == nil {
			continue
		}
		at, err := p.listen(value, sockets[value.Name])
		if err != nil {
			return err
		}
		all = append(all, at)
		if at.http3 != nil {
			running.Go("serve HTTP/3", func() { _ = at.http3.Serve() }) // until it is shut down
		}
		running.Go("serve HTTP/2", func() {
			if err := at.http2.Serve(at.split); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("entry point %s: %w", at.name, err)
			}
		})
	}
	datagrams := p.receive(sockets)
	rotating, end := context.WithCancel(ctx)
	defer end()
	running.Go("rotate the keys of tickets", func() { p.tickets.Follow(rotating) })
	var err error
	select {
	case <-ctx.Done():
		err = p.terminate(failed)
	case <-p.left:
		datagrams.leave()
		p.drain(ctx, all)
	case err = <-failed:
	}
	end()
	datagrams.close()
	stop(all, p.grace())
	running.Wait()
	return err
}
