package admin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// specs keeps the Spec that it gets.
type specs struct {
	fake
	got api.Spec
}

func (s *specs) Apply(_ context.Context, spec api.Spec, _ bool) (api.Result, error) {
	s.got = spec
	return api.Result{Changed: true}, nil
}

func (s *specs) State() (api.Spec, []string) { return s.got, nil }

func (s *specs) Editable() (api.Spec, []string) { return s.got, nil }

// manyRouters returns a gateway with so many routers and services.
func manyRouters(count int) *model.Gateway {
	h := gateway.HTTP{Routers: map[string]*gateway.Router{}, Services: map[string]*gateway.Service{}}
	for i := range count {
		name := fmt.Sprintf("shop-%d", i)
		h.Routers[name] = &gateway.Router{Rule: fmt.Sprintf("Host(`shop-%d.example.com`) && PathPrefix(`/api`)", i),
			Service: name, EntryPoints: []string{"websecure"}, TLS: &gateway.RouterTLS{CertResolver: "le"}}
		h.Services[name] = &gateway.Service{LoadBalancer: &gateway.LoadBalancer{Servers: []gateway.Server{
			{URL: fmt.Sprintf("http://192.0.2.%d:8080", i%250)}}}}
	}
	return &model.Gateway{Config: gateway.Config{HTTP: h}}
}

// TestLargeSpecs sends a declaration with 10,000 routers, beside clients who promise large ones
// and send nothing, and one that is too large.
func TestLargeSpecs(t *testing.T) {
	s := &specs{}
	d := s.daemon()
	d.Specs = s
	socket := admintest.Serve(t, d)
	c := admin.NewClient(socket)
	result, err := admin.Apply.Do(t.Context(), c,
		admin.SpecRequest{Spec: api.Spec{Set: "shops", Gateway: manyRouters(10000)}})
	if err != nil || !result.Changed {
		t.Fatalf("10,000 routers: %+v, %v", result, err)
	}
	if n := len(s.got.Gateway.Config.HTTP.Routers); n != 10000 || s.got.Set != "shops" {
		t.Errorf("the daemon got %d routers", n)
	}
	if read, err := admin.ReadState.Do(t.Context(), c); err != nil || len(read.Gateway.Config.HTTP.Routers) != 10000 {
		t.Errorf("the state: %v", err)
	}
	_, failure := ask(t, socket, "POST", "/v1/apply", `{"set":"`+strings.Repeat("x", api.MaxSpec)+`"}`)
	if failure.Code != api.Invalid || !strings.Contains(failure.Message, "larger than 33554432 bytes") {
		t.Errorf("a declaration that is too large: %+v", failure)
	}
	for range 4 { // more than are read at the same time
		silent, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		_, _ = io.WriteString(silent, "POST /v1/apply HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n{")
	}
	small := admin.SpecRequest{Spec: api.Spec{Set: "small"}}
	if _, err := admin.Apply.Do(t.Context(), c, small); err != nil || s.got.Set != "small" {
		t.Errorf("a small declaration beside unfinished ones: %v", err)
	}
}
