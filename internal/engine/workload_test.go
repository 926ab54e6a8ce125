package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/cgroup"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
)

// bound returns a state with one workload of the host, named by its cgroup, and
// one publish per protocol via socket.
func bound(t *testing.T) (model.State, string) {
	t.Helper()
	path, err := os.MkdirTemp(cgroupRoot(t), plan.Mark+"-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	s := model.State{
		Networks:  []model.Network{{Name: "host", Driver: model.DriverHost}},
		Endpoints: []model.Endpoint{{Name: "web", Network: "host", Cgroup: path}},
	}
	for _, proto := range protos {
		publish(&s, "web", model.ViaSocket, proto, 8080, 80)
	}
	return s, path
}

func cgroupRoot(t *testing.T) string {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// within returns the server host as seen by a process in the cgroup. It moves
// the whole test process there.
func within(t *testing.T, w *topology.World, path string) place.Place {
	return func(fn func() error) error {
		lines, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return err
		}
		_, home, _ := strings.Cut("\n"+string(lines), "\n0::")
		home, _, _ = strings.Cut(home, "\n")
		if err := enter(path); err != nil {
			return err
		}
		return errors.Join(w.DoServer(fn), enter(filepath.Join(cgroupRoot(t), home)))
	}
}

// enter moves this process into the cgroup.
func enter(path string) error {
	return os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte("0"), 0)
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
