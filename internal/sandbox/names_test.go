package sandbox

import (
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
		"/networks":      `[{"Id": "aaaa", "Name": "web"}, {"Id": "gone", "Name": "gone"}]`,
		"/networks/aaaa": `{"Name": "web", "Containers": {"cccc": {"Name": "nginx", "EndpointID": "eeee"}}}`,
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
}
