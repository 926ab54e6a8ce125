// Package across explains the part of a flow on another node of a cluster: it asks the node that has the
// destination, and answers this question of other nodes. It does not print, and reads only this host.
package across

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
	"unicode/utf8"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// Question is the kind of the question between nodes.
const Question = "explain-flow"

// The limits of an answer of another node, and of the time that it may take.
const (
	maxSteps   = 64
	maxCaveats = 16
	maxText    = 600
	askLimit   = 10 * time.Second
)

// Nodes are the other nodes of the cluster.
type Nodes interface {
	// Holder returns the node whose sandbox may have the address, or that holds it as a virtual address.
	// Returns a Fault with code NotFound if there is no cluster, or no node has the address.
	Holder(a netip.Addr) (id, name string, err error)
	Peer(ctx context.Context, id, kind string, question, into any) error
}

// Ask asks the node that has the destination. What the node answers is escaped and bounded. A node that does
// not answer is a Problem of the part. Returns the error of Holder.
func Ask(ctx context.Context, nodes Nodes, q api.FlowQuestion) (api.FlowPart, error) {
	id, name, err := nodes.Holder(q.Destination.Addr())
	if err != nil {
		return api.FlowPart{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var part api.FlowPart
	if err := nodes.Peer(ctx, id, Question, q, &part); err != nil {
		part = api.FlowPart{Problem: fmt.Sprintf("node %s does not answer: %v", name, err)}
	}
	part.Node = name
	return bounded(part), nil
}

// bounded returns the part without what a node should not send.
func bounded(p api.FlowPart) api.FlowPart {
	if len(p.Steps) > maxSteps {
		p.Steps = p.Steps[:maxSteps]
		p.Caveats = append([]string{fmt.Sprintf("the node has reported more than %d steps", maxSteps)}, p.Caveats...)
	}
	p.Caveats = p.Caveats[:min(len(p.Caveats), maxCaveats)]
	texts := []*string{&p.Node, &p.Problem, &p.Outcome, &p.Verdict}
	for i := range p.Steps {
		s := &p.Steps[i]
		texts = append(texts, &s.Where, &s.Link, &s.What, &s.By, &s.Program, &s.Why)
	}
	for i := range p.Caveats {
		texts = append(texts, &p.Caveats[i])
	}
	for _, text := range texts {
		*text = shortened(escape.Line(*text))
	}
	return p
}

// shortened returns at most maxText bytes of a text.
func shortened(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + " …"
}

// Host answers the questions of other nodes about this host.
type Host struct {
	// Pins is the directory of the eBPF data path's pins.
	Pins string
	// Attachments returns the host's attachments.
	Attachments func() []api.View

	// busy is held by the answer that is under way: it reads the state of the whole host.
	busy sync.Mutex
}

// Answer explains the rest of a flow that arrives from another node (member.Ask). It gives one answer at a
// time.
func (h *Host) Answer(_ context.Context, _ string, text json.RawMessage) (any, error) {
	var q api.FlowQuestion
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, api.Faultf(api.Invalid, "explain flow: %w", err)
	}
	if !q.Source.Addr().IsValid() || !q.Destination.IsValid() || q.Proto != model.TCP && q.Proto != model.UDP {
		return nil, api.Faultf(api.Invalid, "explain flow: want a protocol and two addresses")
	}
	if !h.busy.TryLock() {
		return nil, api.Faultf(api.Conflict, "explain flow: this node explains another flow: try again")
	}
	defer h.busy.Unlock()
	e, err := h.explain(q)
	if err != nil {
		return nil, err
	}
	return bounded(partOf(e)), nil
}

// explain follows the packet on this host.
func (h *Host) explain(q api.FlowQuestion) (e flow.Explanation, err error) {
	host, err := kernel.Open("", kernel.Options{Pins: h.Pins})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	opt := hostview.Options{Sandboxes: map[string]string{}, Finder: sandbox.New()}
	for _, v := range h.Attachments() {
		opt.Sandboxes[v.Name] = v.Sandbox
	}
	world, err := hostview.New(host, opt)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	return flow.ExplainArrival(world.Facts(), q.Proto, q.Source, q.Destination)
}

// partOf returns an explanation as this node reports it.
func partOf(e flow.Explanation) api.FlowPart {
	p := api.FlowPart{Outcome: string(e.Outcome), Verdict: e.Verdict, Caveats: append(e.Caveats, e.Notes...)}
	for _, s := range e.Hops {
		p.Steps = append(p.Steps, api.FlowStep{Where: s.Where, Link: s.Link, What: s.What, By: s.By, Program: s.Program,
			Why: s.Why})
	}
	return p
}
