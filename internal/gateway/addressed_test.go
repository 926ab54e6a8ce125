package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestPathOfServer checks that the path of a server's URL comes before that of requests only with
// preservePath.
func TestPathOfServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RequestURI) // the client may be gone
	}))
	t.Cleanup(s.Close)
	at := func(path string, preserve bool) *model.Service {
		service := serviceOf(s.URL + path)
		service.LoadBalancer.Servers[0].PreservePath = preserve
		return service
	}
	w := newWorld(t, model.Static{})
	w.gateway.Apply(&model.Config{HTTP: model.HTTP{
		Routers: map[string]*model.Router{"a@file": {Rule: "Host(`a.test`)", Service: "a@file"},
			"b@file": {Rule: "Host(`b.test`)", Service: "b@file", Middlewares: []string{"strip@file"}}},
		Services: map[string]*model.Service{"a@file": at("/base/", false), "b@file": at("/base", true)},
		Middlewares: map[string]*model.Middleware{"strip@file": {StripPrefixRegex: &model.StripPrefixRegex{
			Regex: []string{"/strip"}}}}}}, nil)
	for url, want := range map[string]string{"http://a.test/x?y": "/x?y", "http://b.test/x%2Fz?y": "/base/x%2Fz?y",
		"http://b.test/strip": "/base/", "http://b.test/strip?y": "/base/?y"} {
		if _, got := w.get(url); got != want {
			t.Errorf("%s: the server got %s, want %s", url, got, want)
		}
	}
}

// TestAddressesAsHosts checks that a rule matches the literal of an IPv6 address, with and without
// a port of the request.
func TestAddressesAsHosts(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{"a@file": {Rule: "Host(`10::10`)", Service: "s@file"},
		"b@file": {Rule: "Host(`[::1]`)", Service: "s@file"}, "c@file": {Rule: "Host(`192.0.2.1`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": server(t, named("found"))})
	for url, want := range map[string]int{"http://[10::10]/": 200, "http://[10::10]:8080/": 200, "http://[::1]/": 200,
		"http://192.0.2.1:80/": 200, "http://[10::11]/": 404} {
		if status, _ := w.get(url); status != want {
			t.Errorf("%s: status %d, want %d", url, status, want)
		}
	}
}
