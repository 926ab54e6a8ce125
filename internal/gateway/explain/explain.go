// Package explain says which router a request takes, and why no other: a snapshot and a URL → what people see.
//
// It sends no request, and knows no objects beside those of the snapshot.
package explain

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
)

// Source is what explanations are about.
type Source struct {
	*snapshot.Snapshot
	Static *gateway.Static
	// Down returns the URLs of a service's servers that are down.
	Down func(service string) []string
	// Failures returns the last failures of a service's servers, by their URLs as shown.
	Failures func(service string) map[string]shown.Failure
}

// entriesFor returns the entry points that a request for a URL may arrive at. If they do not
// follow from its port, those that redirect all requests do not count.
func (s Source) entriesFor(name string, u *url.URL) []gateway.EntryPoint {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	var all, at []gateway.EntryPoint
	for _, e := range s.Static.EntryPoints {
		if strings.HasSuffix(e.Address, "/udp") || name != "" && e.Name != name {
			continue
		}
		if all = append(all, e); snapshot.PortOf(e.Address) == port {
			at = append(at, e)
		}
	}
	if name == "" && len(at) > 0 {
		return at
	}
	if len(all) > 1 {
		all = slices.DeleteFunc(all, func(e gateway.EntryPoint) bool { return e.Redirect != nil })
	}
	return all
}

// doubts returns what is doubtful about an object that is in use.
func (s Source) doubts(kind, name string) []string {
	for _, at := range s.Statuses {
		if at.Kind == kind && at.Name == name && at.State == status.Warning {
			return at.Reasons
		}
	}
	return nil
}

// lostSources returns why the files and containers that have no objects have none: one of them may have
// the router of a request.
func (s Source) lostSources() (all []string) {
	for _, at := range s.Statuses {
		if at.Kind == "source" && at.State == status.Disabled {
			all = append(all, at.Name+": "+strings.Join(at.Reasons, "; "))
		}
	}
	return all
}

// serverStates returns the servers of a service. down are the URLs whose checks have failed.
func serverStates(value *gateway.LoadBalancer, down []string) []shown.ServerState {
	var all []shown.ServerState
	for _, one := range value.Servers {
		state := shown.ServerState{URL: gateway.ShownURL(one.URL), State: "up"}
		switch {
		case one.Down != "":
			state.State, state.Reason = "down", one.Down
		case slices.Contains(down, one.URL):
			state.State, state.Reason = "down", "its check failed"
		case one.Fenced:
			state.State, state.Reason = "draining", "it gets requests of existing sessions only"
		}
		all = append(all, state)
	}
	return all
}

// addFailures adds the last failures, by the URLs of servers.
func addFailures(to []shown.ServerState, failures map[string]shown.Failure) {
	for i := range to {
		if last, failed := failures[to[i].URL]; failed {
			to[i].LastFailure = &last
		}
	}
}
