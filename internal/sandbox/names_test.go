package sandbox

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{
		"/networks":        `[{"Id": "aaaa", "Name": "web"}, {"Id": "gone", "Name": "gone"}]`,
		"/containers/json": `[{"Names": ["/db"], "NetworkSettings": {"Networks": {"web": {"EndpointID": "ffff"}}}}, {"Names": ["/nginx"], "NetworkSettings": {"Networks": {"web": {"EndpointID": "eeee"}}}}]`,
		"/networks/aaaa":   `{"Name": "web", "Containers": {"cccc": {"Name": "nginx", "EndpointID": "eeee"}}}`,
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/networks" && !strings.Contains(r.FormValue("filters"), `"fairlead"`) {
			t.Errorf("the filters are %s, want the driver fairlead", r.FormValue("filters"))
		}
		if answers[r.URL.Path] == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	f := Finder{Engines: []string{filepath.Join(t.TempDir(), "none"), socket}}
	want := Names{map[string]string{"aaaa": "web"}, map[string]string{"eeee": "nginx"}}
	if got := f.Names(t.Context(), "fairlead"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for endpoint, want := range map[string]string{"eeee": "nginx", "gggg": ""} {
		if got := Engine(socket).ContainerOf(t.Context(), endpoint); got != want {
			t.Errorf("endpoint %s is of %q, want %q", endpoint, got, want)
		}
	}
}

// TestContainerOfSilentEngine asks an engine that accepts and does not answer.
func TestContainerOfSilentEngine(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			cancel()
			_, _ = io.Copy(io.Discard, conn) // until the caller gives up
		}
	}()
	if got := Engine(socket).ContainerOf(ctx, "eeee"); got != "" {
		t.Errorf("it is of %q", got)
	}
}
