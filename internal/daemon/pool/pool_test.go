package pool_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// inputs returns the inputs of a pool on a host with the sandboxes web-0, web-1 … at
// 10.0.0.1, 10.0.0.2 …, in which these containers run.
func inputs(containers ...pool.Container) pool.Inputs {
	var attachments []model.Attachment
	var endpoints []model.Endpoint
	byRef := map[string]pool.Container{}
	for i, c := range containers {
		e := model.Endpoint{Name: fmt.Sprint("web-", i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}}
		a := model.Attachment{Ref: "container:" + e.Name, Endpoint: e}
		attachments, endpoints, byRef[a.Ref] = append(attachments, a), append(endpoints, e), c
	}
	s := pool.NewSandboxes(attachments, endpoints, nil, byRef)
	return pool.Inputs{Now: time.Now(), Selects: s.Selects, Owns: s.Owns, Alive: s.Alive,
		Drain: func(netip.AddrPort) *pool.Drain { return nil }}
}

// TestPoolFollowsContainers computes the pool of a service that selects containers by a
// label, while they start, stop and are no longer selected.
func TestPoolFollowsContainers(t *testing.T) {
	v := model.VirtualService{Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")}, Proto: model.TCP,
		Ports: []model.PortRange{model.Port(80)},
		Reals: []model.RealServer{{Select: model.Select{Label: "app=web"}, Port: 80, Weight: 1}}}
	runs := pool.Container{Labels: map[string]string{"app": "web"}, Started: "1", StopTimeout: time.Minute}
	stops := runs.After(sandbox.ContainerEvent{Stopping: "SIGTERM"}, time.Now())
	var before *pool.Pool
	for _, c := range []struct {
		containers []pool.Container
		members    string
		events     []string
	}{
		{[]pool.Container{runs, {}}, "10.0.0.1:80", nil},
		{[]pool.Container{runs, runs}, "10.0.0.1:80, 10.0.0.2:80", []string{"joined"}},
		{[]pool.Container{stops, runs}, "10.0.0.1:80 draining, 10.0.0.2:80", []string{"draining"}},
		{[]pool.Container{{}, runs}, "10.0.0.2:80, 10.0.0.1:80 draining leaving", nil},
	} {
		p := pool.New(v, before, inputs(c.containers...))
		p.Full = p.Resolved // as if all checks passed
		p.Health.Up = 1
		var members, events []string
		for _, m := range p.Members {
			text := strings.TrimSpace(m.Text() + " " + string(m.Status))
			if m.Leaving {
				text += " leaving"
			}
			members = append(members, text)
		}
		changes, _ := p.ChangesSince(before)
		for _, e := range changes {
			events = append(events, string(e.Kind))
		}
		if got := strings.Join(members, ", "); got != c.members || !slices.Equal(events, c.events) {
			t.Errorf("members %s, events %v; want %s, %v", got, events, c.members, c.events)
		}
		before = p
	}
	if s := before.Status(); s != api.ServiceUp {
		t.Errorf("the service is %s", s)
	}
}
