package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

func TestIPAllowList(t *testing.T) {
	subnet := 64
	forwarded := "2001:db8::1, 192.0.2.9,198.51.100.7 , 10.0.0.1"
	for _, c := range []struct {
		name, peer, forwarded string
		ranges                []string
		strategy              *gateway.IPStrategy
		want                  bool
	}{
		{name: "prefix", peer: "10.1.2.3:5", ranges: []string{"10.0.0.0/8"}, want: true},
		{name: "other prefix", peer: "11.1.2.3:5", ranges: []string{"10.0.0.0/8"}},
		{name: "address", peer: "[2001:db8::1]:5", ranges: []string{" 2001:DB8:0::1"}, want: true},
		{name: "zone", peer: "[fe80::1%eth0]:5", ranges: []string{"fe80::/10"}, want: true},
		{name: "mapped address", peer: "[::ffff:10.0.0.1]:5", ranges: []string{"10.0.0.0/8"}, want: true},
		{name: "mapped prefix", peer: "10.0.0.1:5", ranges: []string{"::ffff:10.0.0.0/104"}, want: true},
		{name: "all of IPv6 is not IPv4", peer: "10.0.0.1:5", ranges: []string{"::/0"}},
		{name: "no address", peer: "@", ranges: []string{"0.0.0.0/0", "::/0"}},
		{name: "header is ignored", peer: "11.0.0.1:5", forwarded: "10.0.0.1", ranges: []string{"10.0.0.0/8"},
			strategy: &gateway.IPStrategy{}},
		{name: "depth 1", peer: "11.0.0.1:5", forwarded: forwarded, ranges: []string{"10.0.0.1"},
			strategy: &gateway.IPStrategy{Depth: 1}, want: true},
		{name: "depth 3", peer: "11.0.0.1:5", forwarded: forwarded, ranges: []string{"192.0.2.9"},
			strategy: &gateway.IPStrategy{Depth: 3}, want: true},
		{name: "too deep", peer: "11.0.0.1:5", forwarded: forwarded, ranges: []string{"0.0.0.0/0", "::/0"},
			strategy: &gateway.IPStrategy{Depth: 5}},
		{name: "deep without header", peer: "11.0.0.1:5", ranges: []string{"0.0.0.0/0"},
			strategy: &gateway.IPStrategy{Depth: 1}},
		{name: "excluded", peer: "11.0.0.1:5", forwarded: forwarded, ranges: []string{"192.0.2.0/24"},
			strategy: &gateway.IPStrategy{ExcludedIPs: []string{"10.0.0.0/8", "198.51.100.7"}}, want: true},
		{name: "all excluded", peer: "11.0.0.1:5", forwarded: "10.0.0.1", ranges: []string{"0.0.0.0/0"},
			strategy: &gateway.IPStrategy{ExcludedIPs: []string{"10.0.0.0/8"}}},
		{name: "text before an excluded one", peer: "11.0.0.1:5", forwarded: "192.0.2.1, evil, 10.0.0.1",
			ranges: []string{"0.0.0.0/0"}, strategy: &gateway.IPStrategy{ExcludedIPs: []string{"10.0.0.0/8"}}},
		{name: "subnet", peer: "[2001:db8::1:2:3:4]:5", ranges: []string{"2001:db8::"},
			strategy: &gateway.IPStrategy{IPv6Subnet: &subnet}, want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			value := gateway.IPAllowList{SourceRange: c.ranges, IPStrategy: c.strategy, RejectStatusCode: 404}
			for _, value := range []gateway.Middleware{{IPAllowList: &value}, {IPWhiteList: &value}} {
				r := httptest.NewRequest("GET", "/", nil)
				r.RemoteAddr = c.peer
				if c.forwarded != "" {
					r.Header.Set("X-Forwarded-For", c.forwarded)
				}
				w := httptest.NewRecorder()
				build(t, value, middleware.Deps{})(echo()).ServeHTTP(w, r)
				if want := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[c.want]; w.Code != want {
					t.Errorf("status %d, want %d", w.Code, want)
				}
			}
		})
	}
	run(t, gateway.Middleware{IPAllowList: &gateway.IPAllowList{SourceRange: []string{"192.0.2.1"}}}, echo(),
		[]request{{name: "default status", status: 403}})
}
