package sandbox_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/sandbox"
)

// TestFollowContainers is told of a container that runs, of the signal that
// stops it, and of its end.
func TestFollowContainers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string)
	mux := http.NewServeMux()
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if !strings.Contains(r.URL.RawQuery, "kill") {
			<-r.Context().Done() // it is the watch for comings and goings
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
	mux.HandleFunc("/containers/json", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"Id": "4711"}]`) })
	mux.HandleFunc("/containers/4711/json", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"Name": "/shop", "Config": {"Labels": {"app": "web"}, "StopSignal": "SIGQUIT"}, "State": {"Running": true, "Health": {"Status": "healthy"}},
			"NetworkSettings": {"Networks": {"front": {"EndpointID": "e1"}}}}`)
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }() // it ends with the test
	t.Cleanup(func() { server.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	told, ended := make(chan sandbox.ContainerNews, 10), make(chan struct{})
	go func() {
		sandbox.Finder{NetnsDir: t.TempDir(), Engines: []string{socket}}.FollowContainers(ctx, func(n sandbox.ContainerNews) { told <- n })
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	next := func(want string) {
		t.Helper()
		select {
		case n := <-told:
			if got := fmt.Sprintf("%s %s %v %s began=%v stopping=%s gone=%v", n.Name, n.Refs, n.Labels, n.Health, n.Began, n.Stopping, n.Gone); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody tells %s", want)
		}
	}
	event := func(action, signal string) {
		events <- fmt.Sprintf(`{"Action": %q, "Actor": {"ID": "4711", "Attributes": {"signal": %q}}}`, action, signal)
	}
	next("shop [container:shop docker:e1] map[app:web] healthy began=false stopping= gone=false")
	event("kill", "1") // a reload stops nothing
	event("kill", "3")
	next("shop [container:shop docker:e1] map[]  began=false stopping=SIGQUIT gone=false")
	event("die", "")
	next("shop [container:shop docker:e1] map[]  began=false stopping=it has ended gone=false")
	event("start", "")
	next("shop [container:shop docker:e1] map[app:web] healthy began=true stopping= gone=false")
	event("health_status: unhealthy", "")
	next("shop [container:shop docker:e1] map[app:web] healthy began=false stopping= gone=false")
	event("destroy", "")
	next("shop [container:shop docker:e1] map[]  began=false stopping= gone=true")
}
