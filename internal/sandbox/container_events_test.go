package sandbox_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/sandbox"
)

// TestFollowContainers expects events for a running container, the signal that
// stops it, its end, pauses, a new name and a new network.
func TestFollowContainers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string)
	var is atomic.Pointer[string]
	shop := func(name string, run time.Time, paused bool, endpoint string) {
		text := fmt.Sprintf(`{"Name": "/%s", "Config": {"Labels": {"app": "web"}, "StopSignal": "SIGQUIT", "StopTimeout": 20}, "State": {"Running": true, "StartedAt": %q, "Paused": %t, "Health": {"Status": "healthy"}},
			"NetworkSettings": {"Networks": {"front": {"EndpointID": %q}}}}`, name, run.Format(time.RFC3339Nano),
			paused, endpoint)
		is.Store(&text)
	}
	runs := [2]time.Time{time.Unix(1e9, 0).UTC(), time.Unix(2e9, 0).UTC()}
	shop("shop", runs[0], false, "e1")
	mux := http.NewServeMux()
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if !strings.Contains(r.URL.RawQuery, "kill") {
			<-r.Context().Done() // this is the request of Finder.Watch
			return
		}
		for {
			select {
			case e := <-events:
				fmt.Fprintln(w, e)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("/containers/json", func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, `[{"Id": "4711"}]`)
	})
	mux.HandleFunc("/containers/4711/json", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, *is.Load())
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }() // the cleanup ends it
	t.Cleanup(func() { server.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	reported, ended := make(chan sandbox.ContainerEvent, 10), make(chan struct{})
	go func() {
		sandbox.Finder{NetnsDir: t.TempDir(), Engines: []string{socket}}.FollowContainers(ctx,
			func(n sandbox.ContainerEvent) { reported <- n })
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	next := func(want string) {
		t.Helper()
		select {
		case n := <-reported:
			if got := fmt.Sprintf("%s %s %v %s paused=%v started=%s timeout=%s stopping=%s gone=%v", n.Name, n.Refs,
				n.Labels, n.Health, n.Paused, n.Started, n.StopTimeout, n.Stopping, n.Gone); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no event, want %s", want)
		}
	}
	now := runs[0]
	event := func(action, signal string) {
		now = now.Add(time.Second)
		events <- fmt.Sprintf(`{"Action": %q, "TimeNano": %d, "Actor": {"ID": "4711", "Attributes": {"signal": %q}}}`,
			action, now.UnixNano(), signal)
	}
	const first = " map[app:web] healthy paused=false started=2001-09-09T01:46:40Z timeout=1m20s stopping= gone=false"
	const second = " map[app:web] healthy paused=false started=2033-05-18T03:33:20Z timeout=1m20s stopping= gone=false"
	const over = " map[]  paused=false started= timeout=0s stopping="
	next("shop [container:shop docker:e1]" + first)
	event("kill", "1") // a reload stops nothing
	shop("shop", runs[0], true, "e1")
	event("pause", "")
	next("shop [container:shop docker:e1]" + strings.Replace(first, "paused=false", "paused=true", 1))

	// It keeps the name by which it was attached until this run ends.
	shop("store", runs[0], false, "e1")
	event("rename", "")
	next("store [container:store docker:e1 container:shop]" + first)
	event("kill", "3")
	next("store [container:store docker:e1 container:shop]" + over + "SIGQUIT gone=false")

	// It has started again before the event of its end arrives.
	shop("store", runs[1], false, "e2")
	event("health_status: unhealthy", "")
	next("store [docker:e1 container:shop]" + over + " gone=true")
	next("store [container:store docker:e2]" + second)
	event("die", "")
	now = runs[1]
	event("start", "")
	next("store [container:store docker:e2]" + second)

	shop("store", runs[1], false, "e3")
	events <- `{"Type": "network", "Action": "connect", "Actor": {"ID": "0815", "Attributes": {"container": "4711"}}}`
	next("store [docker:e2]" + over + " gone=true")
	next("store [container:store docker:e3]" + second)
	event("die", "")
	next("store [container:store docker:e3]" + over + "it has ended gone=false")
	event("destroy", "")
	next("store [container:store docker:e3]" + over + " gone=true")
}
