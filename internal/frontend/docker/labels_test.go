package docker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cgroup"
	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/sandbox"
	"fairlead/test/place"
)

const shopID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// shopEngine is an engine with one container.
type shopEngine struct {
	shop   sandbox.Labelled
	group  string
	events chan *dockerapi.Event
	// asked gets an element for each request about the container. The request is
	// answered when answers gets an element; nil answers at once.
	asked, answers chan struct{}
	// silent means that the engine answers nothing.
	silent bool
	// restarts gets an element for each restart.
	restarts chan string
	// refuses means that it does not restart the container.
	refuses bool
}

func (e shopEngine) wait() {
	if e.answers != nil {
		e.asked <- struct{}{}
		<-e.answers
	}
}

func (e shopEngine) Labelled(_ context.Context, _, id string) ([]sandbox.Labelled, error) {
	if id != "" {
		e.wait()
	} else if !e.shop.Running && !e.shop.Starting {
		return nil, nil // the container is not created yet
	}
	return []sandbox.Labelled{e.shop}, nil
}

func (e shopEngine) FollowLabelled(ctx context.Context, _ string, ready func(), notify func(*dockerapi.Event)) error {
	if e.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-e.events:
			notify(h)
		}
	}
}

func (e shopEngine) CgroupOf(context.Context, string) (string, error) {
	e.wait()
	return e.group, nil
}

func (e shopEngine) RestartByPolicy(_ context.Context, id string) (bool, error) {
	e.restarts <- id
	return !e.refuses, nil
}

func (e shopEngine) Watch(context.Context) (<-chan struct{}, error) {
	ticks := make(chan struct{}, 1)
	ticks <- struct{}{}
	return ticks, nil
}

// admission is an admitted workload, and the content of its cgroup.freeze at that
// time.
type admission struct {
	api.Workload
	freeze string
}

type workloads struct {
	admitted chan admission
	// notes survive a reboot, passing ones do not.
	notes, passing memory
	// early says that each workload bound ports before they were published. If it is
	// not "certain", that is uncertain.
	early string
	// attached are the attachments, and dismissed gets an element for each one that is dismissed, unless it is nil.
	attached  *[]api.View
	dismissed chan struct{}
}

func (w workloads) Admit(is api.Workload) (bool, error) {
	w.admitted <- admission{is, frozenAs(is.Cgroup)}
	return true, is.Wrong
}

// frozenAs returns the content of a cgroup's cgroup.freeze.
func frozenAs(path string) string {
	freeze, _ := os.ReadFile(filepath.Join(path, "cgroup.freeze"))
	return strings.TrimSpace(string(freeze))
}

func (w workloads) Dismiss(string) error {
	if w.dismissed != nil {
		w.dismissed <- struct{}{}
	}
	return nil
}

func (w workloads) NeedsRestart(string) (needs, certain bool, err error) {
	return w.early != "", w.early != "perhaps", nil
}
func (w workloads) Attachments() []api.View { return *w.attached }

// labels creates a cgroup that is used as the root of the hierarchy.
func labels(t *testing.T) (root string, w workloads) {
	t.Helper()
	at, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	if root, err = os.MkdirTemp(at, "fairlead-test-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, dir := range []string{"docker/" + shopID, "docker", ""} {
			if err := os.Remove(filepath.Join(root, dir)); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	})
	return root, workloads{admitted: make(chan admission, 8), notes: memory{}, passing: memory{},
		attached: &[]api.View{}}
}

func run(t *testing.T, e shopEngine, root string, w workloads) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := docker.Labels{Workloads: w, Engine: e, Lasting: w.notes, Passing: w.passing,
		Root: root, Log: slog.New(slog.DiscardHandler)}
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func shop() shopEngine {
	return shopEngine{restarts: make(chan string, 8), events: make(chan *dockerapi.Event), group: "/docker/" + shopID,
		shop: sandbox.Labelled{ID: shopID, Name: "shop", HostNetwork: true,
			Labels: map[string]string{docker.LabelPublish: "8080:80, 53:53/udp", docker.LabelUnpublished: "deny"}}}
}

func makeGroup(t *testing.T, root string) (path string) {
	t.Helper()
	path = filepath.Join(root, "docker", shopID)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func thawed(t *testing.T, path string) {
	t.Helper()
	if frozen := frozenAs(path); frozen != "0" {
		t.Errorf("cgroup.freeze is %q, want 0", frozen)
	}
}

// TestCgroupIsFrozenUntilAdmitted checks that a new cgroup is frozen until its ports
// are published.
func TestCgroupIsFrozenUntilAdmitted(t *testing.T) {
	e := shop()
	root, w := labels(t)
	end := run(t, e, root, w)
	e.events <- &dockerapi.Event{Action: "create", Actor: dockerapi.Actor{ID: shopID}}
	e.events <- &dockerapi.Event{Action: "create",
		Actor: dockerapi.Actor{ID: shopID}} // when this is read, the first event has been handled
	path := makeGroup(t, root)
	a := <-w.admitted
	if a.Cgroup != path || a.freeze != "1" || a.Ref != "container:shop" || len(a.Publishes) != 2 ||
		a.Unpublished != "deny" || a.Wrong != nil {
		t.Errorf("got the admission %+v", a)
	}
	end()
	thawed(t, path)
}

// TestCgroupIsFrozenUntilLabelsAreKnown checks that a cgroup stays frozen if the
// engine returns the labels only after it has started the container. If the container
// is on another network, the cgroup is thawed then.
func TestCgroupIsFrozenUntilLabelsAreKnown(t *testing.T) {
	for _, hostNetwork := range []bool{true, false} {
		e := shop()
		e.shop.HostNetwork, e.asked, e.answers = hostNetwork, make(chan struct{}), make(chan struct{})
		root, w := labels(t)
		end := run(t, e, root, w)
		e.events <- &dockerapi.Event{Action: "create", Actor: dockerapi.Actor{ID: shopID}}
		<-e.asked
		path := makeGroup(t, root)
		for began := time.Now(); frozenAs(path) != "1"; time.Sleep(time.Millisecond) {
			if time.Since(began) > place.Timeout {
				t.Fatal("the cgroup is not frozen")
			}
		}
		e.answers <- struct{}{}
		if hostNetwork {
			if a := <-w.admitted; a.freeze != "1" {
				t.Errorf("got the admission %+v", a)
			}
		}
		end()
		thawed(t, path)
	}
}

// TestCgroupFrozenByAKilledDaemon checks that the next daemon thaws it.
func TestCgroupFrozenByAKilledDaemon(t *testing.T) {
	e := shop()
	e.shop.Starting = true
	root, w := labels(t)
	path := makeGroup(t, root)
	if err := os.WriteFile(filepath.Join(path, "cgroup.freeze"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	end := run(t, e, root, w)
	<-w.admitted
	end()
	thawed(t, path)
}

// TestWorkerDoesNotWaitForTheEngine checks that a container that ran before the
// daemon is admitted by its cgroup, although the engine has not answered yet.
func TestWorkerDoesNotWaitForTheEngine(t *testing.T) {
	e := shop()
	e.shop.Running, e.asked, e.answers = true, make(chan struct{}), make(chan struct{})
	root, w := labels(t)
	end := run(t, e, root, w)
	<-e.asked
	path := makeGroup(t, root)
	if a := <-w.admitted; a.Cgroup != path || a.Wrong != nil {
		t.Errorf("got the admission %+v", a)
	}
	e.answers <- struct{}{}
	end()
	thawed(t, path)
}

// TestContainerWithoutOwnCgroup checks the error for a container without a cgroup v2.
func TestContainerWithoutOwnCgroup(t *testing.T) {
	e := shop()
	e.shop.Running, e.group = true, "/"
	root, w := labels(t)
	end := run(t, e, root, w)
	if a := <-w.admitted; a.Wrong == nil || !strings.Contains(a.Wrong.Error(), "no cgroup v2 of its own") {
		t.Errorf("got the admission %+v", a)
	}
	end()
}

// TestInvalidLabels checks that the error names the label.
func TestInvalidLabels(t *testing.T) {
	for _, text := range []string{"", "80", "8080:80,", "8080:80;8081:81"} {
		e := shop()
		e.shop.Labels = map[string]string{docker.LabelPublish: text}
		e.shop.Running = true
		root, w := labels(t)
		end := run(t, e, root, w)
		if a := <-w.admitted; a.Wrong == nil || !strings.Contains(a.Wrong.Error(), docker.LabelPublish) {
			t.Errorf("%q: got the admission %+v", text, a)
		}
		end()
	}
}

// panicking panics when it admits the first workload.
type panicking struct {
	workloads
	first *sync.Once
}

func (p panicking) Admit(is api.Workload) (bool, error) {
	p.first.Do(func() { panic("a workload without a port") })
	return p.workloads.Admit(is)
}

// TestPanicConcernsOneContainer checks that the worker goes on after a container whose admission panics.
func TestPanicConcernsOneContainer(t *testing.T) {
	e := shop()
	e.shop.Running, e.group = true, "/"
	root, w := labels(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := docker.Labels{Workloads: panicking{w, new(sync.Once)}, Engine: e, Lasting: w.notes,
		Passing: w.passing, Root: root, Log: slog.New(slog.DiscardHandler)}
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	e.events <- &dockerapi.Event{Action: "start", Actor: dockerapi.Actor{ID: shopID}}
	if a := <-w.admitted; a.Ref != "container:shop" {
		t.Errorf("got the admission %+v", a)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
