package site

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/topology/lan"
	"fairlead/internal/lab/website"
	"fairlead/internal/model"
)

// service is the name of the virtual service, directorName that of the director's host.
const (
	service      = "site"
	directorName = "director"
)

// Fall and Rise are the numbers of failed and successful checks in a row after which
// the director removes a gateway and adds it again.
const (
	Fall = 2
	Rise = 2
)

// director is a whole Fairlead daemon on the director's host, controlled with the
// same commands as users run.
type director struct {
	site   *Site
	host   *lan.Host
	group  *ledger.Limited
	daemon failover.Daemon
	said   chan Report
}

// Report is the director's report that a gateway is up or down.
type Report struct {
	At   time.Time
	Node string
	Up   bool
}

// manyReports is how many unread reports are kept; later ones are lost.
const manyReports = 1000

// startDirector starts the daemon, declares the service and waits until the director
// uses all gateways.
func startDirector(ctx context.Context, s *Site) (d *director, err error) {
	d = &director{site: s, said: make(chan Report, manyReports)}
	if d.host, err = s.join(directorName, s.address(directorNumber)); err != nil {
		return d, err
	}
	if d.group, err = s.Groups.Limited(directorName); err != nil {
		return d, err
	}
	if err := d.daemon.Start(ctx, d.place()); err != nil {
		return d, fmt.Errorf("start the director's daemon: %w: %s", err, d.daemon.Log())
	}
	if err := d.daemon.Apply(ctx, d.spec()); err != nil {
		return d, err
	}
	if err := d.follow(ctx); err != nil {
		return d, err
	}
	var failed error
	answers := func() bool { failed = s.ask(s.virtual()); return failed == nil }
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !program.Await(soon, d.daemon.Process, answers) {
		return d, errors.Join(errors.New("the site does not answer through the director"), failed, soon.Err())
	}
	return d, nil
}

func (d *director) place() child.Place {
	return child.Place{Netns: d.host.Netns(), Cgroup: d.group.Dir}
}

// spec declares the service, as in examples/ipvs-direct-routing.yaml.
func (d *director) spec() map[string]any {
	var reals []string
	for _, n := range d.site.Gateways() {
		reals = append(reals, n.Addr.String())
	}
	s := map[string]any{"address": d.site.virtual().String(), "port": securePort, "interface": lan.Link,
		"forward": "direct", "reals": reals, "drain": "10s", "plane": d.site.Path.Plane,
		"scheduler": d.site.Path.Scheduler}
	if d.site.Interval > 0 {
		s["check"] = map[string]any{"type": "https", "host": Host, "path": website.Small,
			"interval": d.site.Interval.String(), "fall": Fall, "rise": Rise}
	}
	return map[string]any{"services": map[string]any{service: s}}
}

// follow reads the daemon's events.
func (d *director) follow(ctx context.Context) error {
	return d.daemon.Follow(ctx, func(e api.Event) {
		for _, n := range d.site.Gateways() {
			if e.Object != fmt.Sprintf("service %s real %s", service, at(n)) {
				continue
			}
			select {
			case d.said <- Report{e.Time, n.Name, e.Kind == api.RealIsUp}:
			default:
			}
		}
	}, func() { close(d.said) })
}

// at returns a gateway's name in commands and events: its port is the service's.
func at(n *Node) string { return model.RealServer{Address: n.Addr}.String() }

// drain stops new connections to a node and waits until it has none.
func (d *director) drain(ctx context.Context, n *Node) error {
	return d.daemon.Do(ctx, nil, "service", "drain", service, at(n), "--wait")
}

// enable allows new connections to a node again.
func (d *director) enable(ctx context.Context, n *Node) error {
	return d.daemon.Do(ctx, nil, "service", "enable", service, at(n))
}

// Await waits until the director reports after a time that a gateway is up or down,
// and returns the time of the report.
func (s *Site) Await(ctx context.Context, n *Node, up bool, after time.Time) (time.Time, error) {
	expired := time.After(patience)
	for {
		select {
		case said, ok := <-s.director.said:
			if !ok {
				return time.Time{}, fmt.Errorf("the director's daemon has ended: %s", s.director.daemon.Log())
			}
			if said.Node == n.Name && said.Up == up && said.At.After(after) {
				return said.At, nil
			}
		case <-expired:
			return time.Time{}, fmt.Errorf("the director has not reported within %s that the gateway of %s has failed "+
				"or returned: %s", patience, n.Name, s.director.daemon.Log())
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

func (d *director) close() error {
	err := d.daemon.Close(patience)
	if d.group != nil {
		err = errors.Join(err, d.group.Close())
	}
	return err
}
