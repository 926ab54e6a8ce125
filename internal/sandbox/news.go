package sandbox

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ContainerNews is what an engine tells of a container.
type ContainerNews struct {
	// Refs are the references of its attachments: container:NAME, and
	// docker:ENDPOINT of each of its endpoints.
	Refs []string
	Name string
	// Labels and Health are known while it runs. Health is that of the engine's
	// own check: starting, healthy, unhealthy, or empty without one.
	Labels map[string]string
	Health string
	// Began says that it has just started.
	Began bool
	// Stopping says by what it is being stopped, or that it has ended; empty
	// otherwise.
	Stopping string
	// Gone says that it is no more.
	Gone bool
}

// newsEvents are the events that are told; "died" and "remove" are podman's
// words.
var newsEvents = map[string][]string{"type": {"container"}, "event": {"start", "kill", "die", "died", "destroy", "remove", "health_status"}}

// FollowContainers calls tell with what happens to containers of all engines,
// beginning with those that run, until ctx ends. While there is no engine it
// waits for one.
func (f Finder) FollowContainers(ctx context.Context, tell func(ContainerNews)) {
	var all sync.WaitGroup
	var one sync.Mutex
	for _, socket := range f.Engines {
		came, err := Finder{NetnsDir: f.NetnsDir, Engines: []string{socket}}.Watch(ctx)
		if err != nil {
			continue // there is no inotify: nobody can be waited for
		}
		n := &newsReader{socket: socket, known: map[string]*newsOf{}, tell: func(c ContainerNews) {
			one.Lock()
			defer one.Unlock()
			tell(c)
		}}
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-came:
					_ = n.follow(ctx) // it comes again with the engine
				}
			}
		})
	}
	all.Wait()
}

// newsReader follows one engine.
type newsReader struct {
	socket string
	known  map[string]*newsOf
	tell   func(ContainerNews)
}

// newsOf is what is known of a container.
type newsOf struct {
	ContainerNews
	stop syscall.Signal
}

func (n *newsReader) follow(ctx context.Context) error {
	answer, err := get(ctx, n.socket, "/events?filters="+filters(newsEvents))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(answer)
	}
	var running []containerJSON
	if err := ask(ctx, n.socket, "/containers/json", &running); err != nil {
		return err
	}
	for _, c := range running {
		n.learn(ctx, c.ID, false)
	}
	for read := json.NewDecoder(answer.Body); ; {
		var e struct {
			Action string
			Actor  struct {
				ID         string
				Attributes map[string]string
			}
		}
		if err := read.Decode(&e); err != nil {
			return err
		}
		n.heard(ctx, e.Action, e.Actor.ID, e.Actor.Attributes["signal"])
	}
}

func (n *newsReader) heard(ctx context.Context, action, id, signal string) {
	action, _, _ = strings.Cut(action, ":") // health_status: healthy
	c := n.known[id]
	if c == nil && action != "start" {
		return
	}
	switch action {
	case "start":
		n.learn(ctx, id, true)
	case "health_status":
		n.learn(ctx, id, false)
	case "kill":
		if s := signalOf(signal); s == c.stop || s == unix.SIGTERM || s == unix.SIGKILL {
			n.stopping(c, unix.SignalName(s))
		}
	case "die", "died":
		n.stopping(c, "it has ended")
	case "destroy", "remove":
		delete(n.known, id)
		n.tell(ContainerNews{Refs: c.Refs, Name: c.Name, Gone: true})
	}
}

func (n *newsReader) stopping(c *newsOf, by string) {
	n.tell(ContainerNews{Refs: c.Refs, Name: c.Name, Stopping: by})
}

// learn asks for a container, and tells of it.
func (n *newsReader) learn(ctx context.Context, id string, began bool) {
	var c struct {
		Name   string
		Config struct {
			Labels     map[string]string
			StopSignal string
		}
		State struct {
			Running bool
			Health  *struct{ Status string }
		}
		NetworkSettings struct {
			Networks map[string]struct{ EndpointID string }
		}
	}
	if err := ask(ctx, n.socket, "/containers/"+id+"/json", &c); err != nil || !c.State.Running {
		return // it has ended meanwhile
	}
	news := ContainerNews{Name: strings.TrimPrefix(c.Name, "/"), Labels: c.Config.Labels, Began: began}
	if c.State.Health != nil && c.State.Health.Status != "none" {
		news.Health = c.State.Health.Status
	}
	news.Refs = []string{string(Container) + ":" + news.Name}
	for _, network := range c.NetworkSettings.Networks {
		if network.EndpointID != "" {
			news.Refs = append(news.Refs, "docker:"+network.EndpointID)
		}
	}
	n.known[id] = &newsOf{news, signalOf(c.Config.StopSignal)}
	n.tell(news)
}

// signalOf reads a signal as engines write it: 15, SIGTERM, TERM, SIGRTMIN+3.
// Nothing is SIGTERM.
func signalOf(text string) syscall.Signal {
	if n, err := strconv.Atoi(text); err == nil {
		return syscall.Signal(n)
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if beyond, realtime := strings.CutPrefix(name, "SIGRTMIN+"); realtime {
		n, _ := strconv.Atoi(beyond)
		return syscall.Signal(34 + n)
	}
	if s := unix.SignalNum(name); s != 0 {
		return s
	}
	return unix.SIGTERM
}
