package soak_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/daemons"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// How often the daemon is killed, and how long the host then runs without a daemon.
const (
	shortKill = time.Second
	longKill  = 5 * time.Second
	absence   = 300 * time.Millisecond
)

// TestDaemonKilledUnderLoad repeatedly kills a daemon with SIGKILL, and runs the host without a
// daemon for some time. No conversation may break, and no short connection may be refused.
func TestDaemonKilledUnderLoad(t *testing.T) {
	whole, _, err := lengths()
	if err != nil {
		t.Fatal(err)
	}
	every := shortKill
	if os.Getenv("SOAK_DURATION") != "" {
		every = longKill
	}
	w := newWorld(t)
	d := newMortal(t, w)
	translated := d.publishAll()
	ctx, stop := context.WithCancel(t.Context())
	var loads sync.WaitGroup
	for _, l := range translated {
		for _, talk := range l.talks {
			loads.Go(func() { talk.run(ctx) })
		}
		loads.Go(func() { l.come(ctx) })
	}
	kills := 0
	for end := time.Now().Add(whole); !t.Failed() && time.Now().Before(end); kills++ {
		time.Sleep(every)
		d.Kill()
		time.Sleep(absence)
		d.Start()
		for _, l := range translated {
			l.report(t)
		}
	}
	stop()
	loads.Wait()
	for _, l := range translated {
		l.report(t)
		t.Logf("%s: %d conversations, %d short connections, %d kills, slowest connection %v", l.publish, len(l.talks),
			l.came.Load(), kills, time.Duration(l.slowest.Load()))
	}
	d.Stop()
	d.reap()
	w.nothingLeft()
}

// mortal is a daemon on the server host that is killed and started again. When it is stopped, it
// removes everything.
type mortal struct {
	*daemons.Daemon
	t *testing.T
	w *world
}

func newMortal(t *testing.T, w *world) *mortal {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	do := daemons.In(t.TempDir())
	do.TearDown = true
	return &mortal{daemons.New(t, do, w.Server()), t, w}
}

// reap waits for the proxy. It was the child of a daemon that was killed, so it is now a child of
// this process.
func (d *mortal) reap() {
	d.t.Helper()
	for end := time.Now().Add(place.Timeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); errors.Is(err, unix.ECHILD) {
			return
		}
	}
	d.t.Error("a process still runs after its daemon has ended")
}

// publishAll attaches the world's sandboxes, and publishes a port of each via one publish mode.
func (d *mortal) publishAll() []*translated {
	d.t.Helper()
	for _, n := range d.w.base.Networks {
		if _, err := admin.CreateNetwork.Do(d.t.Context(), d.Client, admin.NetworkRequest{Network: n}); err != nil {
			d.t.Fatal(err)
		}
	}
	modes := []model.Via{model.ViaNAT, model.ViaEBPF, model.ViaEBPF, model.ViaProxy}
	var all []*translated
	for i, e := range d.w.base.Endpoints {
		if _, err := admin.Attach.Do(d.t.Context(), d.Client, api.AttachRequest{Endpoint: e}); err != nil {
			d.t.Fatal(err)
		}
		p := model.Publish{Via: modes[i], Proto: model.TCP, HostPorts: model.Port(7000 + uint16(i)),
			Ports: model.Port(kept)}
		if _, err := admin.Publish.Do(d.t.Context(), d.Client,
			api.PublishRequest{Target: e.Name, Publishes: []model.Publish{p}}); err != nil {
			d.t.Fatal(err)
		}
		p.Endpoint = e.Name
		all = append(all, newMapped(d.t, d.w, p))
	}
	return all
}

// translated is a publish with its clients on the client host.
type translated struct {
	w       *world
	publish model.Publish
	want    string
	talks   []*talk
	wrongs  wrongs

	came, slowest atomic.Int64
}

func newMapped(t *testing.T, w *world, p model.Publish) *translated {
	t.Helper()
	l := &translated{w: w, publish: p, want: fmt.Sprintf("%s:%d", p.Endpoint, kept)}
	from := w.vantages()[0]
	for _, host := range from.hosts {
		l.talks = append(l.talks, open(t, from, p.Proto, netip.AddrPortFrom(host, p.HostPorts.First), l.want))
	}
	return l
}

// come opens short connections, one after the other.
func (l *translated) come(ctx context.Context) {
	for ctx.Err() == nil {
		at := time.Now()
		name, err := once(l.w.DoClient, l.publish.Proto,
			netip.AddrPortFrom(topology.ServerAddr4, l.publish.HostPorts.First), place.Timeout)
		if err != nil || name != l.want {
			l.wrongs.note(fmt.Errorf("%s: a short connection reaches %q, want %s: %w", l.publish, name, l.want, err))
			return
		}
		l.came.Add(1)
		l.slowest.Store(max(l.slowest.Load(), int64(time.Since(at))))
		time.Sleep(time.Millisecond)
	}
}

func (l *translated) report(t *testing.T) {
	t.Helper()
	l.wrongs.report(t)
	for _, talk := range l.talks {
		talk.wrongs.report(t)
	}
}
