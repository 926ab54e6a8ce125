package daemon_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/daemon"
	"fairlead/internal/engine"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"
	"fairlead/test/process"
)

// daemonRole is the role of a process that runs a daemon in its namespace until it is
// killed.
const daemonRole = "killed-daemon"

// order configures such a process.
type order struct {
	At     store.Places
	Socket string
	Facts  plan.Facts
	// Pins is as in kernel.Options.
	Pins string
}

func runDaemon(do order) error {
	s, err := store.OpenFile(do.At)
	if err != nil {
		return err
	}
	h, err := kernel.Open("", kernel.Options{Pins: do.Pins})
	if err != nil {
		return err
	}
	d, err := daemon.New(daemon.Config{
		Kernel: h, Flows: h, Inspector: h, Counters: h, Host: h, Store: s, Sandboxes: sandbox.Finder{}, Facts: do.Facts,
		Log: slog.New(slog.DiscardHandler),
		StartProxy: func(context.Context) (engine.Proxy, error) {
			return proxy.Start(context.Background(), child.Place{Netns: h.Netns()})
		},
	})
	if err != nil {
		return err
	}
	l, err := admin.Listen(do.Socket)
	if err != nil {
		return err
	}
	go func() { _ = admin.Serve(context.Background(), l, admin.Handler(calls(d)), admin.ConnsPerPeer) }()
	process.Ready()
	return d.Run(context.Background())
}

// kill9 runs a daemon process on the host of the world. end kills it with SIGKILL.
func (w *world) kill9(socket string) (client *admin.Client, end func()) {
	w.Helper()
	p := process.Start(w, daemonRole, order{w.at, socket, w.facts, w.pins}, child.Place{Netns: w.host.Netns()})
	w.killed = p.Cmd.Process.Pid
	return admin.NewClient(socket), func() { _ = p.Kill() }
}

// TestKillDaemonAtAnyMoment kills the daemon while it attaches, publishes and
// detaches. The next daemon completes or reverts what it finds.
func TestKillDaemonAtAnyMoment(t *testing.T) {
	w := newWorld(t)
	before := w.snapshot()
	socket := filepath.Join(t.TempDir(), "s")
	random := rand.New(rand.NewPCG(3, 4))
	boxes := []watchedSandbox{w.watchedSandbox(), w.watchedSandbox(), w.watchedSandbox()}
	client, end := w.kill9(socket)
	if _, err := admin.CreateNetwork.Do(context.Background(), client, admin.NetworkRequest{Network: lan}); err != nil {
		t.Fatal(err)
	}
	for i := range 15 {
		after := time.Duration(random.Int64N(int64(60 * time.Millisecond)))
		killed := make(chan struct{})
		go func() { defer close(killed); time.Sleep(after); end() }()
		for _, b := range boxes {
			request := to(b)
			switch (i + random.IntN(2)) % 3 {
			case 0:
				_, _ = admin.Detach.Do(context.Background(), client, api.DetachRequest{Network: "lan", Sandbox: b.pid})
			default:
				_, _ = admin.Attach.Do(context.Background(), client, request)
				_, _ = admin.Publish.Do(context.Background(), client,
					api.PublishRequest{Target: b.pid, Publishes: []model.Publish{
						{Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(8000 + uint16(i)),
							Ports: model.Port(80)}}})
			}
		}
		<-killed
		client, end = w.kill9(socket)
	}
	all, err := client.Attachments(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Status != api.Up {
			t.Errorf("after the last restart: %+v", v)
		}
	}
	// After any interruption, a repeated request succeeds.
	for _, b := range boxes {
		if _, err := admin.Attach.Do(context.Background(), client, to(b)); err != nil {
			t.Error(err)
		}
		if _, err := admin.Detach.Do(context.Background(), client,
			api.DetachRequest{Network: "lan", Sandbox: b.pid}); err != nil {
			t.Error(err)
		}
	}
	end()
	w.unchanged(before)
}
