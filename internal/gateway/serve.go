package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"fairlead/internal/model/gateway"
)

// mostHead is the size of the largest head of a request, in bytes.
const mostHead = 64 << 10

// Listen opens the listeners of the entry points. It opens all or none.
func Listen(entries []gateway.EntryPoint) (map[string]net.Listener, error) {
	all := map[string]net.Listener{}
	for _, e := range entries {
		address, protocol, _ := strings.Cut(e.Address, "/")
		if protocol == "udp" {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			for _, open := range all {
				open.Close()
			}
			return nil, fmt.Errorf("entry point %s: %w", e.Name, err)
		}
		all[e.Name] = l
	}
	return all, nil
}

// Serve serves the entry points until the context ends, and then until their requests
// have ended or the grace time is over.
func (g *Gateway) Serve(ctx context.Context, listeners map[string]net.Listener) error {
	var servers []*http.Server
	var running sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, value := range g.static.EntryPoints {
		l := listeners[value.Name]
		if l == nil {
			continue
		}
		s, err := g.newServer(value)
		if err != nil {
			return err
		}
		servers = append(servers, s)
		running.Go(func() {
			if err := s.Serve(newSplitter(l, s.TLSConfig, s.ReadHeaderTimeout)); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("entry point %s: %w", value.Name, err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop(servers, g.grace())
	running.Wait()
	g.Close()
	return err
}

// newServer returns the HTTP server of an entry point.
func (g *Gateway) newServer(value gateway.EntryPoint) (*http.Server, error) {
	e, err := g.newEntry(value)
	if err != nil {
		return nil, fmt.Errorf("entry point %s: %w", value.Name, err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           e,
		Protocols:         protocols,
		TLSConfig:         g.serverTLS(value.Name),
		MaxHeaderBytes:    mostHead,
		ReadHeaderTimeout: cmp.Or(value.Timeouts.Read, 60*time.Second),
		IdleTimeout:       cmp.Or(value.Timeouts.Idle, 180*time.Second),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: cmp.Or(value.MaxConcurrentStreams, 250),
			SendPingTimeout: time.Minute, WriteByteTimeout: time.Minute},
		ConnState: g.observer.connections(value.Name),
		ErrorLog:  g.errorLog(),
	}, nil
}

// grace returns the longest grace time of the entry points.
func (g *Gateway) grace() time.Duration {
	most := time.Duration(0)
	for _, e := range g.static.EntryPoints {
		most = max(most, cmp.Or(e.Timeouts.Grace, 10*time.Second))
	}
	return most
}

// stop lets the servers finish their requests, for as long as the grace time.
func stop(servers []*http.Server, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range servers {
		all.Go(func() {
			if s.Shutdown(ctx) != nil {
				s.Close()
			}
		})
	}
	all.Wait()
}
