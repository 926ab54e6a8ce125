package daemon_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

func published(via model.Via, ports ...uint16) []model.Publish {
	var all []model.Publish
	for _, p := range ports {
		all = append(all, model.Publish{Via: via, Proto: model.TCP, HostPorts: model.Port(p), Ports: model.Port(80)})
	}
	return all
}

func (w *world) publish(b watchedSandbox, publishes []model.Publish) api.Result {
	w.Helper()
	r, err := w.Publish(context.Background(), api.PublishRequest{Target: b.pid, Publishes: publishes})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// TestSandboxDies: when a sandbox dies, its objects are removed, and no others.
func TestSandboxDies(t *testing.T) {
	for _, driver := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		t.Run(string(driver), func(t *testing.T) {
			w := newWorld(t).start()
			empty := w.snapshot()
			stays, dies := w.watchedSandbox(), w.watchedSandbox()
			n := lan
			n.Driver = driver
			w.network(n)
			w.attach(to(stays))
			w.publish(stays, published(model.ViaNAT, 8080))
			stays.serves(t, ":80")
			before := w.snapshot()
			w.attach(to(dies))
			w.publish(dies, append(published(model.ViaNAT, 8081), published(model.ViaProxy, 8082)...))
			dies.kill()
			w.until("one is left", func() bool { return len(w.Attachments()) == 1 })
			w.unchanged(before)
			if err := w.host.Do(func() error { return dial("127.0.0.1:8080") }); err != nil {
				t.Error(err)
			}
			stays.kill()
			w.nothingLeft(empty)
		})
	}
}

// TestNamespaceDies removes the name of a sandbox that is not a process, or replaces
// the namespace at that name.
func TestNamespaceDies(t *testing.T) {
	w := newWorld(t).start()
	w.network(lan)
	before := w.snapshot()
	w.named("web")
	req := api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: "web"}}
	w.attach(req)
	w.unname("web")
	w.nothingLeft(before)

	// Another namespace with the same name is another sandbox.
	w.named("web")
	first := w.attach(req)
	w.unname("web")
	w.named("web")
	second := w.attach(req)
	if !second.Changed || first.Attachments[0].Namespace == second.Attachments[0].Namespace {
		t.Errorf("%+v, then %+v", first, second)
	}
	w.unname("web")
	w.nothingLeft(before)
}

// named creates a namespace as `ip netns add` does, but in the test's directory.
func (w *world) named(name string) {
	w.Helper()
	path := filepath.Join(w.finder.NetnsDir, name)
	ns, err := netns.New()
	if err != nil {
		w.Fatal(err)
	}
	defer ns.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		w.Fatal(err)
	}
	if err := unix.Mount(ns.Path(), path, "", unix.MS_BIND, ""); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

func (w *world) unname(name string) {
	w.Helper()
	path := filepath.Join(w.finder.NetnsDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		w.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		w.Fatal(err)
	}
}

// TestKept: an attachment with Keep set waits for its sandbox, also across a restart
// of the daemon.
func TestKept(t *testing.T) {
	w := newWorld(t).start()
	w.network(lan)
	before := w.snapshot()
	w.named("web")
	req := api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: "web"}, Keep: true}
	w.attach(req)
	if _, err := w.Publish(context.Background(),
		api.PublishRequest{Target: "web", Publishes: published(model.ViaNAT, 8080)}); err != nil {
		t.Fatal(err)
	}
	status := func() api.Status { return w.Attachments()[0].Status }
	for _, restart := range []string{"not", "meanwhile", "after it came"} {
		w.unname("web")
		w.until("it is waited for", func() bool { return status() == api.Waiting })
		w.unchanged(before)
		if restart != "not" {
			w.stop()
		}
		if restart == "meanwhile" {
			w.start()
		}
		w.named("web")
		if restart == "after it came" {
			w.start()
		}
		w.until("it is attached again", func() bool { return status() == api.Up })
		if v := w.Attachments()[0]; len(v.Publishes) != 1 {
			t.Errorf("back as %+v", v)
		}
	}
	if _, err := w.Detach(context.Background(), api.DetachRequest{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
}

// TestRestart: nothing changes while no daemon runs. The next daemon removes what
// belonged to a sandbox that died meanwhile.
func TestRestart(t *testing.T) {
	w := newWorld(t).start()
	w.network(lan)
	empty := w.snapshot()
	stays, dies := w.watchedSandbox(), w.watchedSandbox()
	w.attach(to(stays))
	w.publish(stays, published(model.ViaNAT, 8080))
	before := w.snapshot()
	w.attach(to(dies))
	w.publish(dies, published(model.ViaNAT, 8081))
	w.stop()
	dies.kill()
	w.start()
	w.until("one is left", func() bool { return len(w.Attachments()) == 1 })
	// A new proxy has the port of the publish open.
	w.unchanged(before)
	if again := w.attach(to(stays)); again.Changed {
		t.Errorf("attach again: %+v", again)
	}
	if err := w.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.unchanged(empty)
}

// TestKillSandboxAtAnyMoment kills sandboxes while they are attached and published,
// FAIRLEAD_KILLS times.
func TestKillSandboxAtAnyMoment(t *testing.T) {
	kills := 100
	if text := os.Getenv("FAIRLEAD_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t).start()
	w.network(lan)
	routed := model.Network{Name: "routed", Driver: model.DriverRouted, Subnets: []model.Subnet{
		{Prefix: prefix("172.31.0.0/16")}, {Prefix: prefix("fd00:31::/64")}}}
	w.network(routed)
	w.sh("ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	w.network(model.Network{Name: "macvlan", Driver: model.DriverMacvlan, Parent: "up0",
		Subnets: []model.Subnet{{Prefix: prefix("172.32.0.0/16")}}})
	before := w.snapshot()
	stays := w.watchedSandbox()
	w.attach(to(stays))
	with := w.snapshot()
	random := rand.New(rand.NewPCG(1, 2)) // a fixed seed, to repeat the same delays
	usual := 10 * time.Millisecond        // the measured duration of an attach
	attached := 0
	for i := range kills {
		b := w.watchedSandbox()
		req := to(b)
		req.Network = []string{"lan", "routed", "macvlan"}[i%3]
		// From 0 to twice the duration of an attach.
		after := time.Duration(random.Int64N(int64(2 * usual)))
		var killed sync.WaitGroup
		killed.Go(func() { time.Sleep(after); b.kill() })
		start := time.Now()
		if _, err := w.Attach(context.Background(), req); err == nil {
			usual = (9*usual + time.Since(start)) / 10
			attached++
			_, _ = w.Publish(context.Background(), api.PublishRequest{Target: b.pid, // the sandbox may have ended
				Publishes: published([]model.Via{model.ViaNAT, model.ViaProxy, model.ViaNAT, model.ViaEBPF}[i%4], 8000+
					uint16(i%1000))})
		}
		killed.Wait()
	}
	w.until("one is left", func() bool { return len(w.Attachments()) == 1 })
	t.Logf("%d of %d were attached before they died", attached, kills)
	w.unchanged(with)
	if _, err := w.Detach(context.Background(), api.DetachRequest{Name: fmt.Sprint("pid-", stays.pid)}); err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
	record, err := w.record()
	if err != nil || len(record.Leases) != 0 || len(record.Settings) != 0 || len(record.Applied.Endpoints) != 0 {
		t.Errorf("the record is %+v, %v, want it empty", record, err)
	}
}
