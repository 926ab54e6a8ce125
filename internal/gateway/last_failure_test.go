package gateway_test

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/gateway/view"
	model "fairlead/internal/model/gateway"
)

// TestLastFailures checks that the explanation and the API show the last failure of a server that is up, with
// its time, also after a change, and none of a server that has not failed.
func TestLastFailures(t *testing.T) {
	w := newWorld(t, model.Static{API: &model.API{Insecure: true}})
	slow := server(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	slow.LoadBalancer.ServersTransport = "short@file"
	short := map[string]*model.ServersTransport{"short@file": {
		ForwardingTimeouts: model.ForwardingTimeouts{ResponseHeaderTimeout: 50 * time.Millisecond}}}
	good, refusing := server(t, named("ok")), &model.Service{LoadBalancer: &model.LoadBalancer{
		Servers: []model.Server{{URL: "http://user:marker@" + refusingAddress(t)}}}}
	routers, services := map[string]*model.Router{}, map[string]*model.Service{"slow@file": slow, "good@file": good,
		"refusing@file": refusing}
	for name := range services {
		host := strings.TrimSuffix(name, "@file") + ".test"
		routers[name] = &model.Router{Rule: "Host(`" + host + "`)", Service: name}
	}
	routers["api@file"] = &model.Router{Rule: "PathPrefix(`/api`)", Service: "api@internal"}
	apply := func() {
		w.gateway.Apply(&model.Config{HTTP: model.HTTP{Routers: routers, Services: services,
			ServersTransports: short}}, nil)
	}
	apply()
	began := time.Now()
	for host, want := range map[string]int{"slow.test": 504, "refusing.test": 502, "good.test": 200} {
		if status, _ := w.get("http://" + host + "/"); status != want {
			t.Fatalf("%s: %d, want %d", host, status, want)
		}
	}
	routers["other@file"] = &model.Router{Rule: "Host(`other.test`)", Service: "slow@file"}
	apply()
	_, text := w.get("http://any.test/api/rawdata")
	var shown view.RawData
	if err := json.Unmarshal([]byte(text), &shown); err != nil || strings.Contains(text, "marker") {
		t.Fatalf("%v: %s", err, text)
	}
	for name, want := range map[string]string{"slow@file": "timeout", "refusing@file": "refused", "good@file": ""} {
		a, err := w.gateway.Explain("web", "GET", "http://"+strings.TrimSuffix(name, "@file")+".test/")
		if err != nil || len(a.Servers) != 1 || a.Servers[0].State != "up" {
			t.Fatalf("%s: %v, %+v", name, err, a)
		}
		last := a.Servers[0].LastFailure
		if want == "" {
			if last != nil || len(shown.Services[name].LastFailures) > 0 {
				t.Errorf("%s: %+v, %+v, want no failure", name, last, shown.Services[name])
			}
			continue
		}
		if last == nil || !strings.Contains(last.Text, want) || last.At.Before(began) {
			t.Errorf("%s: %+v, want %s", name, last, want)
			continue
		}
		if in := shown.Services[name].LastFailures[a.Servers[0].URL]; in.Text != last.Text || !in.At.Equal(last.At) {
			t.Errorf("%s: the API shows %+v, want %+v", name, in, last)
		}
	}
}

// refusingAddress returns an address where connections are refused: its socket does not listen.
func refusingAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*syscall.SockaddrInet4).Port))
}
