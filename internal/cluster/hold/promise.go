package hold

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/cluster/vip"
	"fairlead/internal/kernel/virtual"
)

// Question is the kind of the question for promises. The question has a list of vip.Request,
// and the answer a vip.Promise for each.
const Question = "vip-promise"

// maxRequests limits the requests in one question, so that it fits in the body of a request.
const maxRequests = 200

// maxPromises limits how many promises a node keeps for addresses that it does not know.
const maxPromises = 1024

// question is one for another node.
type question struct {
	address *address
	round   int64
	request vip.Request
	timeout time.Duration
}

// maxAsking is how many requests to one node are under way at most. A holder asks again after H/4, and an
// answer may take H/2: if the next question waited for it, it would be sent too late.
const maxAsking = 3

// questions are those for one node. While maxAsking requests are under way, the others wait and
// become the next one.
type questions struct {
	waiting []question
	running int
}

// ask asks other nodes for their promise.
func (r *Runner) ask(a *address, q vip.Ask) {
	life := r.life
	if life == nil {
		return
	}
	for _, node := range q.Nodes {
		all := r.asking[node]
		if all == nil {
			all = &questions{}
			r.asking[node] = all
		}
		all.add(question{a, q.Round, q.Request, q.Timeout})
		if all.running < maxAsking {
			all.running++
			r.tasks.Go(func() { r.askNode(life, node, all) })
		}
	}
}

// add adds a question, which replaces an earlier one about the address.
func (q *questions) add(next question) {
	for i, w := range q.waiting {
		if w.address == next.address {
			q.waiting[i] = next
			return
		}
	}
	q.waiting = append(q.waiting, next)
}

// askNode sends the questions for a node until none is left.
func (r *Runner) askNode(ctx context.Context, node string, all *questions) {
	for {
		r.mu.Lock()
		part := all.waiting[:min(len(all.waiting), maxRequests)]
		all.waiting = all.waiting[len(part):]
		if len(part) == 0 || r.life == nil {
			if all.running--; all.running == 0 {
				delete(r.asking, node)
			}
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		var requests []vip.Request
		timeout := part[0].timeout
		for _, q := range part {
			requests = append(requests, q.request)
			timeout = min(timeout, q.timeout)
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		var answers []vip.Promise
		err := r.cfg.Peers.Peer(ctx, node, Question, requests, &answers)
		cancel()
		if err != nil || len(answers) != len(part) {
			continue // the machine asks again
		}
		r.promised(node, part, answers)
	}
}

// promised gives the answers of a node to the machines.
func (r *Runner) promised(node string, part []question, answers []vip.Promise) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range part {
		if a := q.address; r.life != nil && r.known[a.addr] == a {
			r.do(a, a.machine.Promised(virtual.Now(), q.round, node, answers[i]))
			r.refresh(a)
		}
	}
	r.settle()
}

// Answer answers the question of another node, whose id is from (member.Ask).
func (r *Runner) Answer(_ context.Context, from string, text json.RawMessage) (any, error) {
	var requests []vip.Request
	if err := json.Unmarshal(text, &requests); err != nil {
		return nil, fmt.Errorf("read the question for a promise: %w", err)
	}
	if len(requests) > maxRequests {
		return nil, fmt.Errorf("answer the question for a promise: it has %d requests, want at most %d",
			len(requests), maxRequests)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := []vip.Promise{}
	for _, q := range requests {
		answers = append(answers, r.answer(from, q))
	}
	r.settle()
	return answers, nil
}

// answer answers the request of the node from.
func (r *Runner) answer(from string, q vip.Request) vip.Promise {
	addr, err := netip.ParseAddr(q.Address)
	switch {
	case err != nil || r.life == nil || r.snapshot == nil:
		return vip.Promise{Reason: "this node does not know the cluster's addresses yet"}
	case q.Holder != from:
		return vip.Promise{Reason: "a node asks for itself only"}
	}
	if a := r.known[addr]; a != nil {
		return a.machine.Asked(virtual.Now(), q)
	}
	// The snapshot of this node is older than the address. It promises all the same, because it
	// does not claim an address before it has known it for as long as a promise is kept.
	if q.Hold < vip.MinHold || q.Hold > vip.MaxHold || len(r.promises) == maxPromises {
		return vip.Promise{Reason: "this node does not know the address"}
	}
	r.promises[addr] = q
	return vip.Promise{Promised: true}
}
