package engine_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// bound returns a state with one workload of the host, named by its cgroup, and
// one publish per protocol via socket.
func bound(t *testing.T) (model.State, string) {
	t.Helper()
	path := kerneltest.Cgroup(t, kerneltest.CgroupRoot(t))
	s := model.State{
		Networks:  []model.Network{{Name: "host", Driver: model.DriverHost}},
		Endpoints: []model.Endpoint{{Name: "web", Network: "host", Cgroup: path}},
	}
	for _, proto := range protos {
		publish(&s, "web", model.ViaSocket, proto, 8080, 80)
	}
	return s, path
}

// within returns the server host as seen by a process in the cgroup. It moves
// the whole test process there.
func within(t *testing.T, w *topology.World, path string) place.Place {
	return func(fn func() error) (err error) {
		kerneltest.InCgroup(t, path, func() { err = w.DoServer(fn) })
		return err
	}
}

// TestRestartedWorkloadIsBoundAgain puts a new cgroup at the path of the old
// one, as a container engine does when a container restarts.
func TestRestartedWorkloadIsBoundAgain(t *testing.T) {
	w := world(t)
	before := snapshot(t, w)
	s, path := bound(t)
	mustSet(t, w, s)
	undrifted(t, w)
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Engine.Heal(context.Background()); err != nil {
		t.Fatal(err)
	}
	undrifted(t, w)
	t.Run("serves", func(t *testing.T) {
		serve(t, within(t, w, path), "web", ":80")
		for _, proto := range protos {
			for _, at := range server(8080) {
				hears(t, w.DoClient, proto, at, "web")
			}
		}
	})
	mustSet(t, w, model.State{})
	unchanged(t, w, before)
}

// TestTearDownAfterAWorkloadDied deletes the cgroup of a workload and then sets an
// empty state. The workload's grants are deleted too: another workload can use
// its host port immediately.
func TestTearDownAfterAWorkloadDied(t *testing.T) {
	w := world(t)
	dead, path := bound(t)
	mustSet(t, w, dead)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustSet(t, w, model.State{})
	s, path := bound(t)
	mustSet(t, w, s)
	undrifted(t, w)
	serve(t, within(t, w, path), "web", ":80")
	hears(t, w.DoClient, model.TCP, "198.51.100.2:8080", "web")
}

// TestMovedGrant checks that the next bind of the workload follows the new state.
func TestMovedGrant(t *testing.T) {
	w := world(t)
	s, path := bound(t)
	mustSet(t, w, s)
	for i := range s.Publishes {
		s.Publishes[i].HostPorts = model.Port(9090)
	}
	mustSet(t, w, s)
	undrifted(t, w)
	serve(t, within(t, w, path), "web", ":80")
	for _, proto := range protos {
		hears(t, w.DoClient, proto, "198.51.100.2:9090", "web")
	}
}
