package agreement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Services returns the services of the host, with what the other nodes find.
func (a *Agreement) Services() []api.ServiceView {
	all := a.cfg.Host.Services()
	for i := range all {
		a.complete(&all[i])
	}
	return all
}

// Service returns a service of the host, with what the other nodes find. Returns a Fault with code NotFound
// if there is none.
func (a *Agreement) Service(name string) (api.ServiceView, error) {
	v, err := a.cfg.Host.Service(name)
	a.complete(&v)
	return v, err
}

// complete adds what other nodes find of the real servers that are not up for all of them.
func (a *Agreement) complete(v *api.ServiceView) {
	if !compared(*v) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range v.Servers {
		found := a.findings(serverOf(*v, s))
		isDown := func(f api.NodeFinding) bool { return f.State == api.RealDown }
		if s.State == api.RealDown || slices.ContainsFunc(found, isDown) {
			v.Servers[i].Nodes = found
			v.Servers[i].Removed = s.State == api.RealDown && agreed(found)
		}
	}
}

// findings returns what each of the other nodes that accept the clients of a real server's service finds, in
// the order of their names.
func (a *Agreement) findings(s Server) (all []api.NodeFinding) {
	valid := 3 * max(every, perNode*time.Duration(len(a.nodes())))
	for id, name := range a.others(s.Service) {
		f := api.NodeFinding{Node: name}
		switch h, known := a.heard[id]; {
		case !known || time.Since(h.at) > valid:
			// It has not been asked, and has not reported that a server is down.
		case h.problem != "":
			f.Problem = h.problem
		case h.down[s]:
			f.State = api.RealDown
		case h.partial:
			f.Problem = "it reports only a part of the servers that are down"
		default:
			f.State = api.RealUp
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b api.NodeFinding) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// agreed reports whether all nodes that answer find the server down. A node that has not been asked yet may
// find it up.
func agreed(found []api.NodeFinding) bool {
	return !slices.ContainsFunc(found, func(f api.NodeFinding) bool {
		return f.State != api.RealDown && f.Problem == ""
	})
}

// judge reports which of the servers that this node finds down are removed everywhere, and which have been
// up on other nodes for a while.
func (a *Agreement) judge(own Report, now time.Time) {
	a.mu.Lock()
	var events []api.Event
	still := map[Server]judgement{}
	for _, s := range own.Down {
		j, known := a.judged[s]
		if !known {
			j.since = now
		}
		found := a.findings(s)
		kind := api.RealReached
		if agreed(found) {
			kind = api.RealRemoved
		}
		if len(found) > 0 && j.noticed != kind && (kind == api.RealRemoved || now.Sub(j.since) >= settled) {
			j.noticed = kind
			real := model.RealServer{Address: s.Real.Addr(), Port: s.Real.Port()}
			events = append(events, api.Event{Kind: kind, Detail: text(found),
				Object: fmt.Sprintf("service %s real %s", s.Service, real)})
		}
		still[s] = j
	}
	a.judged = still
	a.mu.Unlock()
	for _, e := range events {
		a.cfg.Host.Note(e)
	}
}

// text returns what the nodes find in one line.
func text(found []api.NodeFinding) string {
	states, problems := "it is down on this node", ""
	for _, f := range found {
		if f.Problem != "" {
			problems += fmt.Sprintf("; %s does not answer: %s", f.Node, f.Problem)
		} else {
			states += fmt.Sprintf(", %s on %s", f.State, f.Node)
		}
	}
	return states + problems
}
