package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fairlead/internal/dockerapi"
)

// fakeEngine serves an engine's API at a socket until the test ends.
func fakeEngine(t *testing.T, h http.HandlerFunc) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return socket
}

// TestNoRequestWhileAnswering calls each function that asks an engine, with the context of an answer to it. The engine
// must not get a request.
func TestNoRequestWhileAnswering(t *testing.T) {
	socket := fakeEngine(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the engine was asked %s while it waits for an answer", r.URL)
	})
	ctx := dockerapi.Answering(t.Context())
	f, e := Finder{NetnsDir: t.TempDir(), Engines: []string{socket}}, Engine(socket)
	_, found := f.Resolve(ctx, "shop")
	_, named := f.Resolve(ctx, "container:shop")
	_, labelled := e.Labelled(ctx, "fairlead.publish", "")
	_, group := e.CgroupOf(ctx, "shop")
	for what, err := range map[string]error{"Resolve": found, "Resolve a container": named, "Labelled": labelled,
		"CgroupOf":       group,
		"FollowLabelled": e.FollowLabelled(ctx, "fairlead.publish", func() {}, func(*dockerapi.Event) {})} {
		if !errors.Is(err, dockerapi.ErrAnswering) {
			t.Errorf("%s: %v, want %v", what, err, dockerapi.ErrAnswering)
		}
	}
	if names := f.Names(ctx, "fairlead"); len(names.Networks) > 0 {
		t.Errorf("the names are %v", names)
	}
}

// TestEndpointNames follows an engine whose containers start, are connected to a network and are removed.
func TestEndpointNames(t *testing.T) {
	events := make(chan string)
	containers := map[string]string{
		"":     `[{"Id": "cccc", "Names": ["/db"], "NetworkSettings": {"Networks": {"web": {"EndpointID": "ffff"}}}}]`,
		"dddd": `[{"Id": "dddd", "Names": ["/nginx"], "NetworkSettings": {"Networks": {"web": {"EndpointID": "eeee"}}}}]`,
		"cccc": `[{"Id": "cccc", "Names": ["/db"], "NetworkSettings": {"Networks": {"web": {"EndpointID": "ffff"}, "more": {"EndpointID": "gggg"}}}}]`,
	}
	socket := fakeEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.(http.Flusher).Flush()
			if !strings.Contains(r.FormValue("filters"), "connect") {
				<-r.Context().Done() // the watch for the engine's start
				return
			}
			for e := range events {
				fmt.Fprintln(w, e)
				w.(http.Flusher).Flush()
			}
			return
		}
		var by struct{ ID []string }
		_ = json.Unmarshal([]byte(r.FormValue("filters")), &by)
		fmt.Fprint(w, containers[strings.Join(by.ID, "")])
	})
	t.Cleanup(func() { close(events) })
	var names EndpointNames
	go func() { _ = names.Follow(t.Context(), Engine(socket)) }()
	// is waits until the name is as wanted. If it does not become so, the test's time limit ends it.
	is := func(endpoint, want string) {
		for names.Of(endpoint) != want {
			runtime.Gosched()
		}
	}
	is("ffff", "db")
	is("eeee", "")
	events <- `{"Action": "start", "Actor": {"ID": "dddd"}}`
	is("eeee", "nginx")
	events <- `{"Action": "connect", "Actor": {"ID": "nnnn", "Attributes": {"container": "cccc"}}}`
	is("gggg", "db")
	events <- `{"Action": "destroy", "Actor": {"ID": "dddd"}}`
	is("eeee", "")
	is("ffff", "db")
}
