package daemon_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/frontend/docker"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/model"
)

// askingHost implements docker.Host.
type askingHost struct{ *rtnl.Reader }

func (askingHost) HasLink(string) bool { return true }

func (askingHost) LocalPorts() (model.PortRange, error) {
	return model.PortRange{First: 32768, Last: 60999}, nil
}

// TestEngineIsNotAskedWhileItWaits makes all calls of a Docker engine for networks and containers, also those after a
// power loss, when the driver has forgotten the endpoints. The engine answers no request meanwhile, as when it starts:
// a request to it fails the test.
func TestEngineIsNotAskedWhileItWaits(t *testing.T) {
	w := newWorld(t)
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	engine := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/events" { // the daemon follows these by itself
			t.Errorf("the engine was asked %s", r.URL)
			return
		}
		<-r.Context().Done()
	})}
	go func() { _ = engine.Serve(l) }()
	t.Cleanup(func() { engine.Close() })
	w.finder.Engines = []string{socket}
	w.start()
	w.card()
	handler := docker.New(docker.Config{Daemon: w, Lasting: w.store.Lasting(), Passing: w.store.Passing(),
		Host: askingHost{w.host.Net()}, Caller: func(context.Context) int { return 0 },
		ContainerOf: func(string) string { return "" }, Log: slog.New(slog.DiscardHandler)}).Handler()
	call := func(method string, request object) string {
		t.Helper()
		body, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/"+method, strings.NewReader(string(body))))
		return answer.Body.String()
	}
	must := func(method string, request object) {
		t.Helper()
		if answer := call(method, request); strings.Contains(answer, `"Err":"`) {
			t.Errorf("%s: %s", method, answer)
		}
	}
	must("Plugin.Activate", nil)
	pool := call("IpamDriver.RequestPool", object{"Pool": "172.30.0.0/24"})
	must("IpamDriver.RequestAddress", object{"PoolID": "172.30.0.0/24"})
	if !strings.Contains(pool, "172.30.0.0/24") {
		t.Errorf("request a pool: %s", pool)
	}
	for network, options := range map[string]object{"aaaa": {"via": "nat"},
		"bbbb": {"driver": "device", "parent": "nic"}} {
		pools := []object{{"Pool": "172.30.0.0/24", "Gateway": "172.30.0.1/24"}}
		if network == "bbbb" {
			pools = []object{{"Pool": "203.0.113.0/24", "Gateway": "203.0.113.1/24"}}
		}
		of := object{"NetworkID": network, "IPv4Data": pools,
			"Options": object{"com.docker.network.generic": options}}
		must("NetworkDriver.GwAllocCheck", of)
		must("NetworkDriver.CreateNetwork", of)
		box := w.container()
		at := object{"NetworkID": network, "EndpointID": "e1" + network, "SandboxKey": box.path,
			"Interface": object{"Address": netip.PrefixFrom(netip.MustParsePrefix(
				pools[0]["Pool"].(string)).Addr().Next().Next(), 24).String()},
			"Options": object{"com.docker.network.portmap": []object{
				{"Proto": 6, "Port": 80, "HostPort": 8080, "HostPortEnd": 8080}}}}
		must("NetworkDriver.CreateEndpoint", at)
		must("NetworkDriver.EndpointOperInfo", at)
		must("NetworkDriver.Join", at)
		if network == "aaaa" {
			must("NetworkDriver.ProgramExternalConnectivity", at)
			w.takenPort(call, network)
			must("NetworkDriver.RevokeExternalConnectivity", at)
		}
		must("NetworkDriver.Leave", at)
		must("NetworkDriver.DeleteEndpoint", at)
		must("NetworkDriver.DeleteEndpoint", at)
		must("NetworkDriver.DeleteEndpoint", object{"NetworkID": network, "EndpointID": "forgotten"})
		must("NetworkDriver.DeleteNetwork", of)
	}
	must("IpamDriver.ReleaseAddress", object{"PoolID": "172.30.0.0/24", "Address": "172.30.0.2"})
	must("IpamDriver.ReleasePool", object{"PoolID": "172.30.0.0/24"})
}

// takenPort requests a port that another endpoint has.
func (w *world) takenPort(call func(string, object) string, network string) {
	w.Helper()
	at := object{"NetworkID": network, "EndpointID": "e2" + network, "SandboxKey": w.container().path,
		"Interface": object{"Address": "172.30.0.9/24"}, "Options": object{"com.docker.network.portmap": []object{
			{"Proto": 6, "Port": 80, "HostPort": 8080, "HostPortEnd": 8080}}}}
	call("NetworkDriver.CreateEndpoint", at)
	call("NetworkDriver.Join", at)
	if answer := call("NetworkDriver.ProgramExternalConnectivity", at); !strings.Contains(answer, "already allocated") {
		w.Errorf("publish a port that another endpoint has: %s", answer)
	}
	call("NetworkDriver.DeleteEndpoint", at)
}
