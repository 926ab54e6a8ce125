package docker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/cgroup"
	"fairlead/internal/daemon"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/sandbox"
)

const shopID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// shopEngine is an engine with one container.
type shopEngine struct {
	shop   sandbox.Labelled
	group  string
	events chan sandbox.Happened
	// asked has an element when somebody asks for the container, who is answered
	// when answers has one; nil answers at once.
	asked, answers chan struct{}
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
		return nil, nil // it has yet to be made
	}
	return []sandbox.Labelled{e.shop}, nil
}

func (e shopEngine) FollowLabelled(ctx context.Context, _ string, notified func(), notify func(sandbox.Happened)) error {
	notified()
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

func (e shopEngine) Watch(context.Context) (<-chan struct{}, error) {
	ticks := make(chan struct{}, 1)
	ticks <- struct{}{}
	return ticks, nil
}

// admission is a workload, and what was in its cgroup.freeze then.
type admission struct {
	daemon.Workload
	freeze string
}

type workloads struct{ admitted chan admission }

func (w workloads) Admit(is daemon.Workload) (bool, error) {
	w.admitted <- admission{is, frozenAs(is.Cgroup)}
	return true, is.Wrong
}

// frozenAs is what is in the cgroup.freeze of a cgroup.
func frozenAs(path string) string {
	freeze, _ := os.ReadFile(filepath.Join(path, "cgroup.freeze"))
	return strings.TrimSpace(string(freeze))
}

func (workloads) Dismiss(string) error              { return nil }
func (workloads) NeedsRestart(string) (bool, error) { return false, nil }
func (workloads) Attachments() []daemon.View        { return nil }

// labels makes a cgroup that stands for the hierarchy.
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
	return root, workloads{make(chan admission, 8)}
}

func run(t *testing.T, e shopEngine, root string, w workloads) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := docker.Labels{Workloads: w, Engine: e, Root: root, Log: slog.New(slog.DiscardHandler)}
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
	return shopEngine{events: make(chan sandbox.Happened), group: "/docker/" + shopID, shop: sandbox.Labelled{ID: shopID, Name: "shop", HostNetwork: true,
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
		t.Errorf("the cgroup is frozen: %q", frozen)
	}
}

// TestACgroupIsHeldUntilItIsLed: what the runtime puts there waits.
func TestACgroupIsHeldUntilItIsLed(t *testing.T) {
	e := shop()
	root, w := labels(t)
	end := run(t, e, root, w)
	e.events <- sandbox.Happened{Action: "create", Actor: sandbox.Actor{ID: shopID}}
	e.events <- sandbox.Happened{Action: "create", Actor: sandbox.Actor{ID: shopID}} // the first is through
	path := makeGroup(t, root)
	a := <-w.admitted
	if a.Cgroup != path || a.freeze != "1" || a.Ref != "container:shop" || len(a.Publishes) != 2 || a.Unlisted != "deny" || a.Wrong != nil {
		t.Errorf("admitted is %+v", a)
	}
	end()
	thawed(t, path)
}

// TestACgroupIsHeldUntilItsLabelsAreKnown: the engine may be slower to tell them
// than to start the container. One that is on another network is let go then.
func TestACgroupIsHeldUntilItsLabelsAreKnown(t *testing.T) {
	for _, ours := range []bool{true, false} {
		e := shop()
		e.shop.HostNetwork, e.asked, e.answers = ours, make(chan struct{}), make(chan struct{})
		root, w := labels(t)
		end := run(t, e, root, w)
		e.events <- sandbox.Happened{Action: "create", Actor: sandbox.Actor{ID: shopID}}
		<-e.asked
		path := makeGroup(t, root)
		for frozen := ""; frozen != "1"; frozen = frozenAs(path) {
		}
		e.answers <- struct{}{}
		if ours {
			if a := <-w.admitted; a.freeze != "1" {
				t.Errorf("admitted is %+v", a)
			}
		}
		end()
		thawed(t, path)
	}
}

// TestACgroupThatAKilledDaemonHeld is let go by the next.
func TestACgroupThatAKilledDaemonHeld(t *testing.T) {
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

// TestAnEngineAnswersWhenTheContainerHasStarted, which may wait for us: it was
// running when we came, and is started again.
func TestAnEngineAnswersWhenTheContainerHasStarted(t *testing.T) {
	e := shop()
	e.shop.Running, e.asked, e.answers = true, make(chan struct{}), make(chan struct{})
	root, w := labels(t)
	end := run(t, e, root, w)
	<-e.asked
	path := makeGroup(t, root)
	if a := <-w.admitted; a.Cgroup != path || a.Wrong != nil {
		t.Errorf("admitted is %+v", a)
	}
	e.answers <- struct{}{}
	end()
	thawed(t, path)
}

// TestAContainerWithoutACgroup says that it can have no ports.
func TestAContainerWithoutACgroup(t *testing.T) {
	e := shop()
	e.shop.Running, e.group = true, "/"
	root, w := labels(t)
	end := run(t, e, root, w)
	if a := <-w.admitted; a.Wrong == nil || !strings.Contains(a.Wrong.Error(), "no cgroup v2 of its own") {
		t.Errorf("admitted is %+v", a)
	}
	end()
}

// TestLabelsWithMistakes say which.
func TestLabelsWithMistakes(t *testing.T) {
	for _, text := range []string{"", "80", "8080:80,", "8080:80;8081:81"} {
		e := shop()
		e.shop.Labels = map[string]string{docker.LabelPublish: text}
		e.shop.Running = true
		root, w := labels(t)
		end := run(t, e, root, w)
		if a := <-w.admitted; a.Wrong == nil || !strings.Contains(a.Wrong.Error(), docker.LabelPublish) {
			t.Errorf("%q: admitted is %+v", text, a)
		}
		end()
	}
}
