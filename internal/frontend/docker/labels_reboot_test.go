package docker_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/dockerapi"
)

// TestContainerIsKnownAfterAReboot checks that the cgroup of a container that an earlier daemon knew is frozen until
// its ports are published, although the engine does not answer: after a reboot it starts its containers first. A
// container that was removed is not known.
func TestContainerIsKnownAfterAReboot(t *testing.T) {
	for _, removed := range []bool{false, true} {
		e := shop()
		root, w := labels(t)
		end := run(t, e, root, w)
		e.events <- &dockerapi.Event{Action: "create", Actor: dockerapi.Actor{ID: shopID}}
		path := makeGroup(t, root)
		<-w.admitted
		action := map[bool]string{true: "destroy", false: "create"}[removed]
		for range 2 { // when the second is read, the first has been handled
			e.events <- &dockerapi.Event{Action: action, Actor: dockerapi.Actor{ID: shopID}}
		}
		end()
		if removed != (len(w.notes) == 0) {
			t.Fatalf("removed: %t, notes %s", removed, w.notes)
		}
		for len(w.admitted) > 0 {
			<-w.admitted // it was admitted again with each event
		}
		for _, dir := range []string{path, filepath.Dir(path)} { // the reboot
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}
		silent := shop()
		silent.silent = true
		end = run(t, silent, root, w)
		if removed {
			makeGroup(t, root)
		} else { // before the engine creates the cgroup
			if a := <-w.admitted; a.Cgroup != path || a.freeze != "0" || a.Ref != "container:shop" ||
				len(a.Publishes) != 2 || a.Unpublished != "deny" {
				t.Errorf("got the admission %+v", a)
			}
		}
		end()
		thawed(t, path)
	}
}

// TestContainerThatBoundPortsEarlyIsRestarted checks that the engine is asked to restart a container that ran before
// its ports were published, if the kernel shows that it bound ports.
func TestContainerThatBoundPortsEarlyIsRestarted(t *testing.T) {
	for _, early := range []string{"", "certain", "perhaps"} {
		e := shop()
		e.shop.Running = true
		root, w := labels(t)
		w.early = early
		end := run(t, e, root, w)
		<-w.admitted
		if early == "certain" {
			if id := <-e.restarts; id != shopID {
				t.Errorf("restarted %s", id)
			}
		}
		e.events <- &dockerapi.Event{Action: "start", Actor: dockerapi.Actor{ID: shopID}}
		<-w.admitted
		end()
		if len(e.restarts) > 0 {
			t.Errorf("ports bound early: %q, but the container was restarted, or restarted twice", early)
		}
	}
}

// TestContainerIsRestartedOnce starts the daemon several times beside a container that always binds its ports before
// they are published. It is restarted once, unless the engine has refused that. After it was seen to bind none early,
// and after a reboot, it is restarted once more.
func TestContainerIsRestartedOnce(t *testing.T) {
	e := shop()
	e.shop.Running = true
	root, w := labels(t)
	daemon := func(early string) (restarts int) {
		t.Helper()
		w.early = early
		v := api.View{}
		v.Name, v.Network = "docker-"+e.shop.ID[:12], api.HostNetwork
		*w.attached, w.dismissed = []api.View{v}, make(chan struct{}, 8)
		end := run(t, e, root, w)
		e.events <- &dockerapi.Event{Action: "die", Actor: dockerapi.Actor{ID: e.shop.ID}}
		<-w.dismissed // the worker has handled the containers that the engine has listed before
		end()
		for len(w.admitted) > 0 {
			<-w.admitted
		}
		for ; len(e.restarts) > 0; restarts++ {
			<-e.restarts
		}
		return restarts
	}
	for n, c := range []struct {
		early             string
		refused, rebooted bool
		restarts          int
	}{
		{early: "certain", refused: true, restarts: 1}, {early: "certain", restarts: 1}, {early: "certain"},
		{early: "perhaps"}, {early: "certain"}, {}, {early: "certain", restarts: 1}, {early: "certain"},
		{early: "certain", rebooted: true, restarts: 1}, {early: "certain"},
	} {
		e.refuses = c.refused
		if c.rebooted {
			clear(w.passing)
		}
		// What the engine has refused is tried again.
		if got := daemon(c.early); got < c.restarts || got > c.restarts && !c.refused {
			t.Errorf("daemon %d, ports bound early: %q: %d restarts, want %d", n+1, c.early, got, c.restarts)
		}
	}
	e.shop.ID = strings.Repeat("f", 64) // another container replaces it while no daemon runs
	e.group = "/docker/" + e.shop.ID
	daemon("")
	if len(w.passing) > 0 {
		t.Errorf("the notes about a removed container: %s", w.passing)
	}
}

// TestCgroupIsNotPreparedForAnEndedContainer checks that the cgroup of a container that has ended is not created after
// a reboot, and that the one of a container that the engine does not start is removed again.
func TestCgroupIsNotPreparedForAnEndedContainer(t *testing.T) {
	for _, runs := range []bool{false, true} {
		e := shop() // it lists no container
		root, w := labels(t)
		w.notes["docker labelled "+shopID] = json.RawMessage(`{"ID": "` + shopID + `", "HostNetwork": true, "Cgroup": "docker/` +
			shopID + `", "Runs": ` + fmt.Sprint(runs) + `}`)
		path := filepath.Join(root, "docker", shopID)
		end := run(t, e, root, w)
		for range 2 { // when the second is read, the containers have been listed
			e.events <- &dockerapi.Event{Action: "create", Actor: dockerapi.Actor{ID: strings.Repeat("f", 64)}}
		}
		if runs {
			if a := <-w.admitted; a.Cgroup != path {
				t.Errorf("got the admission %+v", a)
			}
		}
		end()
		if _, err := os.Stat(path); !os.IsNotExist(err) || !runs && len(w.admitted) > 0 {
			t.Errorf("it ran: %t, its cgroup: %v, %d admissions", runs, err, len(w.admitted))
		}
	}
}

// TestRemovedContainersAreForgotten checks that the notes about containers that were removed while no daemon ran are
// removed.
func TestRemovedContainersAreForgotten(t *testing.T) {
	e := shop() // it lists no container
	root, w := labels(t)
	w.notes["docker labelled "+shopID] = json.RawMessage(`{"ID": "` + shopID + `", "HostNetwork": true}`)
	end := run(t, e, root, w)
	for range 2 {
		e.events <- &dockerapi.Event{Action: "die", Actor: dockerapi.Actor{ID: shopID}}
	}
	end()
	if len(w.notes) != 0 {
		t.Errorf("the notes are %s", w.notes)
	}
}
