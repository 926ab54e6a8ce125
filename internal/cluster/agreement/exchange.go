package agreement

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// Question is the kind of the question between nodes.
const Question = "real-servers"

// mostReported limits the real servers of a report, so that it fits into a request.
const mostReported = 500

// Report is what a node finds: the question to another node, and its answer.
type Report struct {
	// Down are the real servers of the cluster's services that the node's own checks find down.
	Down []Server `json:"down,omitempty"`
	// Partial says that there are more of them.
	Partial bool `json:"partial,omitempty"`
}

// Server is a real server of a service. Port 0 is the port that the client has dialled.
type Server struct {
	Service string         `json:"service"`
	Real    netip.AddrPort `json:"real"`
}

// own returns the report of this node.
func (a *Agreement) own() (r Report) {
	if !a.hasServices() {
		return r
	}
	for _, v := range a.cfg.Host.Services() {
		if !compared(v) {
			continue
		}
		for _, s := range v.Servers {
			if s.State == api.RealDown {
				r.Down = append(r.Down, serverOf(v, s))
			}
		}
	}
	if len(r.Down) > mostReported {
		r.Down, r.Partial = r.Down[:mostReported], true
	}
	return r
}

// compared reports whether other nodes have the service, and this one checks its real servers.
func compared(v api.ServiceView) bool { return v.Origin == model.FromCluster && v.Balances() }

func serverOf(v api.ServiceView, s api.RealView) Server {
	return Server{v.Name, netip.AddrPortFrom(s.Address, s.Port)}
}

// exchange sends this node's report to all nodes that accept the clients of a service in it, or in the
// report that they have, and keeps their answers.
func (a *Agreement) exchange(ctx context.Context, own, sent Report) {
	a.mu.Lock()
	asked := map[string]string{}
	for _, name := range servicesIn(own, sent) {
		maps.Copy(asked, a.others(name))
	}
	a.mu.Unlock()
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for id := range asked {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			limited, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			var answer Report
			err := a.cfg.Peers.Peer(limited, id, Question, own, &answer)
			a.hear(id, answer, err)
		})
	}
	all.Wait()
}

func servicesIn(reports ...Report) []string {
	all := map[string]bool{}
	for _, r := range reports {
		for _, s := range r.Down {
			all[s.Service] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// hear keeps the report of a node, or why there is none.
func (a *Agreement) hear(id string, r Report, err error) {
	h := heard{at: time.Now(), down: map[Server]bool{}, partial: r.Partial}
	for _, s := range r.Down[:min(len(r.Down), mostReported)] {
		h.down[s] = true
	}
	if err != nil {
		h.problem = problemOf(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard[id] = h
}

func problemOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return escape.Line(err.Error())
}

// Answer keeps the report of another node, and returns that of this one (member.Ask).
func (a *Agreement) Answer(_ context.Context, from string, text json.RawMessage) (any, error) {
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, api.Faultf(api.Invalid, "compare real servers: %w", err)
	}
	a.hear(from, r, nil)
	return a.own(), nil
}
