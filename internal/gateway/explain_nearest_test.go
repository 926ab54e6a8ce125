package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// crowded is a configuration with faulty routers among many others: of shop.test a broken rule, one that is
// on another entry point, one with a disabled middleware, and one for another path.
func crowded() (model.Static, *model.Config, []status.Status) {
	static := model.Static{Default: []string{"web"}, EntryPoints: []model.EntryPoint{
		{Name: "web", Address: ":8080"}, {Name: "admin", Address: ":9000"}, {Name: "second", Address: ":8081"}}}
	routers := map[string]*model.Router{
		"broken@file":    {Rule: "Host(`shop.test`) && Pth(`/`)", Service: "shop@file"},
		"elsewhere@file": {Rule: "Host(`Shop.Test`)", Service: "shop@file", EntryPoints: []string{"admin"}},
		"limited@file": {Rule: "Host(`shop.test`) && PathPrefix(`/cart`)", Service: "shop@file",
			Middlewares: []string{"limit@file"}, EntryPoints: []string{"web", "second"}},
		"twice@file": {Rule: "Host(`twice.test`)", Service: "shop@file", EntryPoints: []string{"admin", "second"}},
		"lost@file":  {Rule: "Host(`shop.test`) && PathPrefix(`/lost`)", Service: "gone@file"},
		"paths@file": {Rule: "Host(`shop.test`) && PathPrefix(`/api`)", Service: "shop@file"},
	}
	for i := range 8 {
		routers[fmt.Sprintf("a%d@file", i)] = &model.Router{Rule: fmt.Sprintf("Host(`a%d.test`)", i),
			Service: "shop@file"}
	}
	return static, &model.Config{HTTP: model.HTTP{Routers: routers,
			Middlewares: map[string]*model.Middleware{"limits@file": {AddPrefix: &model.AddPrefix{Prefix: "/x"}}},
			Services:    map[string]*model.Service{"shop@file": serviceOf("http://192.0.2.1")}}},
		[]status.Status{
			{Kind: "middleware", Name: "limit@file", State: status.Disabled,
				Reasons: []string{"its average is no number"}},
			{Kind: "service", Name: "gone@file", State: status.Disabled, Reasons: []string{"its port is no number"}}}
}

// TestExplainNamesFaultyRouters checks that an answer names each router of the request's host that the
// request does not take, with its own reason, once.
func TestExplainNamesFaultyRouters(t *testing.T) {
	g, err := gateway.Checking(crowded())
	if err != nil {
		t.Fatal(err)
	}
	why := func(url string) map[string]string {
		t.Helper()
		a, err := g.Explain("", "GET", url)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, n := range a.Nearest {
			if all[n.Router] != "" {
				t.Errorf("%s: router %s is named twice", url, n.Router)
			}
			all[n.Router] = strings.Join(n.Why, "; ")
		}
		return all
	}
	missed := why("http://shop.test:8080/")
	for router, want := range map[string]string{
		"broken@file":    "it is disabled: parse rule: column 22: unknown matcher Pth",
		"elsewhere@file": "it is at the entry point admin (:9000), where the request does not arrive",
		"paths@file":     "PathPrefix(`/api`) does not match: the request has path \"/\"",
	} {
		if !strings.Contains(missed[router], want) {
			t.Errorf("router %s: %q, want %q", router, missed[router], want)
		}
	}
	for url, want := range map[string][2]string{
		"http://shop.test:8080/cart": {"limited@file", "it is disabled: middleware limit@file is disabled: its average is " +
			"no number"},
		"http://shop.test:8080/lost": {"lost@file", "it is disabled: service gone@file is disabled: its port is no number"},
		// A router at several entry points has the reason of the one where the request arrives.
		"https://twice.test:8081/": {"twice@file", "it has no tls, so it takes only http"},
		// A router that takes the request does not hide the broken one.
		"http://shop.test:8080/api": {"broken@file", "it is disabled"},
	} {
		got := why(url)[want[0]]
		if !strings.Contains(got, want[1]) || strings.Count(got, "limit@file") > 1 {
			t.Errorf("%s: router %s: %q, want %q once", url, want[0], got, want[1])
		}
	}
}

// TestReasonsOfUsedObjects checks that TCP and UDP routers have the reasons of what they use, too.
func TestReasonsOfUsedObjects(t *testing.T) {
	static := model.Static{Default: []string{"tcp"}, EntryPoints: []model.EntryPoint{{Name: "tcp", Address: ":1"},
		{Name: "udp", Address: ":2/udp"}}}
	disabled := func(kind, name string) status.Status {
		return status.Status{Kind: kind, Name: name, State: status.Disabled, Reasons: []string{"why " + name}}
	}
	g, err := gateway.Checking(static, &model.Config{
		HTTP: model.HTTP{
			Routers: map[string]*model.Router{"transport@file": {Rule: "PathPrefix(`/`)", Service: "s@file"}},
			Services: map[string]*model.Service{"s@file": {LoadBalancer: &model.LoadBalancer{
				Servers: []model.Server{{URL: "http://192.0.2.1"}}, ServersTransport: "t@file"}}}},
		TCP: model.TCP{
			Routers: map[string]*model.TCPRouter{
				"service@file":    {Rule: "HostSNI(`*`)", Service: "gone@file"},
				"middleware@file": {Rule: "HostSNI(`*`)", Service: "db@file", Middlewares: []string{"list@file"}}},
			Services: map[string]*model.TCPService{"db@file": tcpServiceOf("192.0.2.1:1")}},
		UDP: model.UDP{Routers: map[string]*model.UDPRouter{"udp@file": {Service: "dns@file"}}},
	}, []status.Status{disabled("transport", "t@file"), disabled("TCP service", "gone@file"),
		disabled("TCP middleware", "list@file"), disabled("UDP service", "dns@file")})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"service@file":    "TCP service gone@file is disabled: why gone@file",
		"middleware@file": "TCP middleware list@file is disabled: why list@file",
		"udp@file":        "UDP service dns@file is disabled: why dns@file",
		"transport@file":  "service s@file is disabled: transport t@file is disabled: why t@file",
	} {
		i := slices.IndexFunc(g.Status(), func(s status.Status) bool { return s.Name == name })
		if i < 0 || !slices.Equal(g.Status()[i].Reasons, []string{want}) {
			t.Errorf("router %s: %+v, want %q", name, g.Status()[max(i, 0)], want)
		}
	}
}
