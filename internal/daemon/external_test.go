package daemon_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"
	"fairlead/test/process"

	"github.com/google/go-cmp/cmp"
)

// container is a sandbox whose namespace still exists after its process has ended,
// like one that a container engine has mounted.
type container struct {
	watchedSandbox
	path string
	// unmount ends the namespace, as the engine does by itself while it runs.
	unmount func()
}

func (w *world) container() container {
	w.Helper()
	b := w.watchedSandbox()
	f, err := os.Open("/proc/" + b.pid + "/ns/net")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { f.Close() })
	return container{b, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), func() { f.Close() }}
}

// engineHere identifies an engine that runs, engineGone one that has ended.
var engineHere, engineGone = sandbox.ProcessID(os.Getpid()), fmt.Sprint(os.Getpid(), "@1")

// external joins an external endpoint to a sandbox at path and publishes a port.
func (w *world) external(name, engine, path string, number byte, port uint16) error {
	w.Helper()
	a := model.Attachment{Origin: model.FromDocker, Ref: "docker:" + name, Engine: engine, Endpoint: model.Endpoint{
		Name: name, Network: "lan", HostInterface: "fd-" + name,
		Addresses: addrs(fmt.Sprintf("172.30.0.%d", number), fmt.Sprintf("fd00:30::%d", number))}}
	if _, err := w.Reserve(a); err != nil {
		w.Fatal(err)
	}
	if _, _, err := w.Join(name, path); err != nil {
		w.Fatal(err)
	}
	return w.Expose(name, []model.Publish{{Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(port),
		Ports: model.Port(80)}})
}

// left returns the names of all attachments.
func (w *world) left() string {
	var names []string
	for _, v := range w.Attachments() {
		names = append(names, v.Name)
	}
	return strings.Join(names, " ")
}

// TestDeadExternalEndpoints ends containers while the daemon, their engine or both are
// down: their endpoints are removed, and no others.
func TestDeadExternalEndpoints(t *testing.T) {
	w := newWorld(t).start()
	n := lan
	n.Origin = model.FromDocker
	w.network(n)
	dead, paused, ends := w.container(), w.container(), w.container()
	defer process.Pause(t, paused.Cmd.Process.Pid)()
	for i, e := range []struct{ name, engine, path string }{
		{"dead", engineHere, dead.path}, {"paused", engineHere, paused.path}, {"ends", engineHere, ends.path},
		{"unseen", engineHere, dead.path}, {"starting", engineHere, "/nowhere/starting"},
		{"failed", engineGone, "/nowhere/failed"}, {"unknown", "", "/nowhere/unknown"},
	} {
		if e.name == "unseen" {
			w.RemoveDead() // records which containers run
			dead.kill()
			e.path = w.container().path
		}
		if err := w.external(e.name, e.engine, e.path, byte(10+i), uint16(8010+i)); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	w.start()
	if got := w.left(); got != "ends paused starting unknown unseen" {
		t.Errorf("the attachments are %q", got)
	}
	ends.kill()
	w.until("the container's end is noticed", func() bool { return w.left() == "paused starting unknown unseen" })

	// An endpoint that is alive is not displaced.
	for _, c := range []struct {
		owner string
		gone  bool
	}{{"paused", false}, {"unseen", false}, {"starting", true}, {"unknown", true}, {"unknown-name", true}} {
		if gone, err := w.Displace(c.owner); err != nil || gone != c.gone {
			t.Errorf("%s is displaced: %t, %v, want %t", c.owner, gone, err, c.gone)
		}
	}
	if err := w.external("first", engineHere, "/nowhere/first", 30, 8030); err != nil {
		t.Fatal(err)
	}
	if gone, err := w.Displace("first"); gone || err != nil {
		t.Errorf("an endpoint that is starting is displaced: %t, %v", gone, err)
	}
	if err := w.external("second", engineHere, "/nowhere/second", 31, 8030); err == nil {
		t.Error("two endpoints have the same port")
	}
}

// TestStoredViews ends some of the sandboxes while no daemon runs. StoredViews finds
// out which of the stored attachments have ended.
func TestStoredViews(t *testing.T) {
	w := newWorld(t).start()
	n := lan
	n.Origin = model.FromDocker
	w.network(n)
	lives, ends, goes, plain, ended := w.container(), w.container(), w.container(), w.watchedSandbox(),
		w.watchedSandbox()
	for i, e := range []struct{ name, engine, path string }{
		{"lives", engineHere, lives.path}, {"ends", engineHere, ends.path}, {"unmounted", engineHere, goes.path},
		{"starting", engineHere, "/nowhere/starting"}, {"unseen", "", lives.path},
	} {
		if err := w.external(e.name, e.engine, e.path, byte(10+i), uint16(8010+i)); err != nil {
			t.Fatal(err)
		}
	}
	w.attach(to(plain))
	w.attach(to(ended))
	w.RemoveDead() // records which sandboxes run
	w.stop()
	ends.kill()
	goes.kill()
	goes.unmount()
	ended.kill()
	want := map[string]api.Status{"lives": api.NoDaemon, "ends": api.Ended, "unmounted": api.Ended,
		"starting": api.Ended, "unseen": api.NoDaemon,
		"pid-" + plain.pid: api.NoDaemon, "pid-" + ended.pid: api.Ended}
	saved, err := store.ReadDesired(w.at)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]api.Status{}
	for _, v := range stored.Views(saved) {
		got[v.Name] = v.Status
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}
