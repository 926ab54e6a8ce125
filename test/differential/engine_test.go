package differential_test

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// container is a container of the fake engine.
type container struct {
	Name   string
	Labels map[string]string
	// Ports are the exposed ports, as PORT/PROTOCOL.
	Ports []string
	// Wrong says that one label cannot be used.
	Wrong bool `json:",omitempty"`
}

// version matches the version in the path of a request to the engine.
var version = regexp.MustCompile(`^/v1\.[0-9]+`)

// startEngine starts an engine with containers that never change. It returns the path of its socket.
func startEngine(t testing.TB, containers []container) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "engine.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		w.Header().Set("Content-Type", "application/json")
		switch at := version.ReplaceAllString(r.URL.Path, ""); at {
		case "/_ping":
		case "/version":
			reply(w, map[string]any{"Version": "26.0.0", "ApiVersion": "1.44", "MinAPIVersion": "1.24",
				"Os": "linux"})
		case "/info":
			reply(w, map[string]any{"OperatingSystem": "linux"})
		case "/events":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/containers/json":
			var list []map[string]any
			for i, c := range containers {
				list = append(list, c.listed(i))
			}
			reply(w, list)
		default:
			i := slices.IndexFunc(containers, func(c container) bool { return at == "/containers/"+c.id()+"/json" })
			if i < 0 {
				http.Error(w, `{"message": "not found"}`, http.StatusNotFound)
				return
			}
			reply(w, containers[i].inspected(i))
		}
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return path
}

func reply(w http.ResponseWriter, value any) { _ = json.NewEncoder(w).Encode(value) } // the client may be gone

func (c container) id() string { return "id-of-" + c.Name }

func (c container) listed(int) map[string]any {
	return map[string]any{"Id": c.id(), "Names": []string{"/" + c.Name}, "State": "running", "Status": "Up",
		"Labels": c.Labels, "Image": "image"}
}

// began is when the first container was made. The order of the containers is that of their ages.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (c container) inspected(i int) map[string]any {
	ports := map[string]any{}
	for _, p := range c.Ports {
		ports[p] = struct{}{}
	}
	at := began.Add(time.Duration(i) * time.Second).Format(time.RFC3339Nano)
	return map[string]any{"Id": c.id(), "Name": "/" + c.Name, "Created": at,
		"State":      map[string]any{"Status": "running", "Running": true, "StartedAt": at},
		"Config":     map[string]any{"Labels": c.Labels, "ExposedPorts": ports},
		"HostConfig": map[string]any{"NetworkMode": "shop"},
		"NetworkSettings": map[string]any{"Ports": exposed(c.Ports),
			"Networks": map[string]any{"shop": map[string]any{
				"IPAddress": "127.0.1." + strconv.Itoa(1+i%250), "NetworkID": "shop"}}}}
}

// exposed returns ports that are not published.
func exposed(ports []string) map[string]any {
	all := map[string]any{}
	for _, p := range ports {
		all[p] = nil
	}
	return all
}
