package dockerapi

import (
	"context"
	"encoding/json"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// ShortID is how many characters of an ID engines print.
const ShortID = 12

// Short returns the beginning of a container's ID that engines print.
func Short(id string) string { return id[:min(ShortID, len(id))] }

// Inspected is a container as the engine reports it.
type Inspected struct {
	ID string `json:"Id"`
	// Name begins with a slash.
	Name    string
	Created string
	State   struct {
		Status          string
		Running, Paused bool
		Pid             int
		// StartedAt differs for each run of the container.
		StartedAt string
		Health    *struct{ Status string }
	}
	Config struct {
		Labels       map[string]string
		ExposedPorts map[string]struct{}
		StopSignal   string
		// StopTimeout is in seconds; -1 is no limit.
		StopTimeout *int
	}
	HostConfig struct {
		NetworkMode   string
		RestartPolicy struct{ Name string }
	}
	NetworkSettings struct {
		Networks map[string]Endpoint
		Ports    map[string][]struct {
			HostIP   string `json:"HostIp"`
			HostPort string
		}
	}
}

// Endpoint is a container's connection to a network. DNSNames exists since Docker 25; it contains the names in Aliases.
type Endpoint struct {
	EndpointID, IPAddress, GlobalIPv6Address, MacAddress string
	Aliases, DNSNames                                    []string
}

// Addresses returns the container's addresses in the network.
func (e Endpoint) Addresses() (all []netip.Addr) {
	for _, text := range []string{e.IPAddress, e.GlobalIPv6Address} {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// PlainName returns the name without the slash.
func (c *Inspected) PlainName() string { return strings.TrimPrefix(c.Name, "/") }

// Health returns the result of the engine's health check: starting, healthy or unhealthy. It is empty if the container
// has no check.
func (c *Inspected) Health() string {
	if c.State.Health == nil || c.State.Health.Status == "none" {
		return ""
	}
	return c.State.Health.Status
}

// Started returns when this run of the container started, or the zero time if that is unknown.
func (c *Inspected) Started() time.Time { return Time(c.State.StartedAt) }

// Time returns a time that an engine has written, or the zero time if that is unknown.
func Time(text string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, text)
	return t
}

// Listed is a container in the engine's list.
type Listed struct {
	ID         string `json:"Id"`
	Names      []string
	Image      string
	State      string
	Labels     map[string]string
	HostConfig struct{ NetworkMode string }
	Ports      []struct {
		IP                      string
		PrivatePort, PublicPort uint16
		Type                    string
	}
	NetworkSettings struct {
		Networks map[string]Endpoint
	}
}

// Name returns the container's name without the slash; it is empty if it has none.
func (c *Listed) Name() string {
	if len(c.Names) == 0 {
		return ""
	}
	return strings.TrimPrefix(c.Names[0], "/")
}

// Filter is the filter of a request: allowed values by the kind of filter.
type Filter map[string][]string

// query returns the parameters of a request with the filter.
func (f Filter) query(more url.Values) string {
	if more == nil {
		more = url.Values{}
	}
	if len(f) > 0 {
		text, _ := json.Marshal(f) // a map of strings cannot fail
		more.Set("filters", string(text))
	}
	return "?" + more.Encode()
}

// Running returns the running containers that pass the filter, nil for all.
func (e *Engine) Running(ctx context.Context, f Filter) (all []Listed, err error) {
	err = e.Get(ctx, "/containers/json"+f.query(nil), &all)
	return all, err
}

// All returns the containers that pass the filter, nil for all, whether they run or not.
func (e *Engine) All(ctx context.Context, f Filter) (all []Listed, err error) {
	err = e.Get(ctx, "/containers/json"+f.query(url.Values{"all": {"true"}}), &all)
	return all, err
}

// Inspect returns a container. The error wraps os.ErrNotExist if there is none.
func (e *Engine) Inspect(ctx context.Context, id string) (c Inspected, err error) {
	err = e.Get(ctx, "/containers/"+url.PathEscape(id)+"/json", &c)
	return c, err
}

// Network is a network of the engine, with its containers by their IDs.
type Network struct {
	ID         string
	Name       string
	Containers map[string]struct{ Name, EndpointID string }
}

// Networks returns the networks that pass the filter, without their containers.
func (e *Engine) Networks(ctx context.Context, f Filter) (all []Network, err error) {
	err = e.Get(ctx, "/networks"+f.query(nil), &all)
	return all, err
}

// Network returns a network with its containers.
func (e *Engine) Network(ctx context.Context, id string) (n Network, err error) {
	err = e.Get(ctx, "/networks/"+url.PathEscape(id), &n)
	return n, err
}

// Inspections asks an engine for containers beside the goroutine that handles events, a few at a time. Q is what the
// caller wants to have with the answer.
type Inspections[Q any] struct {
	// Answers are to be received until the context of Ask ends.
	Answers chan Answer[Q]
	engine  *Engine
	slots   chan struct{}
}

// Answer is an engine's answer about a container.
type Answer[Q any] struct {
	ID        string
	To        Q
	Container Inspected
	Err       error
}

// NewInspections returns Inspections with at most so many requests at a time.
func NewInspections[Q any](e *Engine, most int) *Inspections[Q] {
	return &Inspections[Q]{make(chan Answer[Q]), e, make(chan struct{}, most)}
}

// Ask asks for a container. It does not wait; the answer comes unless the context ends.
func (i *Inspections[Q]) Ask(ctx context.Context, id string, q Q) {
	go func() {
		select {
		case i.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := i.engine.Inspect(ctx, id)
		<-i.slots
		select {
		case i.Answers <- Answer[Q]{id, q, c, err}:
		case <-ctx.Done():
		}
	}()
}
