package gateway_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/view"
	model "fairlead/internal/model/gateway"
)

// apiWorld is a gateway with routers for all protocols, whose servers do not exist.
func apiWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, model.Static{API: &model.API{}, Metrics: &model.Metrics{ManualRouting: true},
		EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0", TrustedProxies: []string{"192.0.2.0/24"}},
			{Name: "dns", Address: "127.0.0.1:0/udp", UDPTimeout: time.Minute}}})
	shop := serviceOf("http://192.0.2.1:1", "http://192.0.2.2:1")
	shop.LoadBalancer.Servers[1].Down = "it starts"
	pass := false
	shop.LoadBalancer.PassHostHeader = &pass
	shop.LoadBalancer.PassiveHealthCheck = &model.PassiveHealthCheck{FailureWindow: time.Hour, MaxFailedAttempts: 2}
	w.gateway.Apply(&model.Config{
		HTTP: model.HTTP{
			Routers: map[string]*model.Router{
				"api@file": {Rule: "PathPrefix(`/api`)", Service: "api@internal"},
				"shop@file": {Rule: "Host(`shop.test`)", Service: "shop@file", Middlewares: []string{"limit@file"},
					TLS: &model.RouterTLS{}},
				"bad@file": {Rule: "Host(", Service: "shop@file", EntryPoints: []string{"web"}},
			},
			Middlewares: map[string]*model.Middleware{
				"limit@file": {RateLimit: &model.RateLimit{Average: 7, Period: time.Minute}},
				"users@file": {BasicAuth: &model.BasicAuth{Users: []string{"ann:$2y$05$secret"}}}},
			Services: map[string]*model.Service{"shop@file": shop}},
		TCP: model.TCP{
			Routers: map[string]*model.TCPRouter{"db@file": {Rule: "HostSNI(`db.test`)", Service: "db@file",
				Middlewares: []string{"own@file"}, TLS: &model.TCPRouterTLS{Passthrough: true}}},
			Middlewares: map[string]*model.TCPMiddleware{"own@file": {IPAllowList: &model.TCPIPAllowList{
				SourceRange: []string{"192.0.2.0/24"}}}},
			Services: map[string]*model.TCPService{"db@file": tcpServiceOf("192.0.2.3:5432")}},
		UDP: model.UDP{
			Routers: map[string]*model.UDPRouter{"dns@file": {Service: "dns@file"}},
			Services: map[string]*model.UDPService{"dns@file": {LoadBalancer: &model.UDPLoadBalancer{
				Servers: []model.UDPServer{{Address: "192.0.2.4:53"}}}}}},
	}, nil)
	return w
}

// TestAPI compares answers with the forms that Traefik's API has.
func TestAPI(t *testing.T) {
	w := apiWorld(t)
	const own = `"provider":"file","status":"enabled"`
	for path, want := range map[string]string{
		"http/routers/shop@file": `{"name":"shop@file",` + own + `,"rule":"Host(` + "`shop.test`" + `)","priority":17,
			"entryPoints":["web"],"service":"shop","middlewares":["limit@file"],"tls":{},"using":["web"],"observability":{
			"accessLogs":true,"metrics":true,"tracing":true,"traceVerbosity":"minimal"}}`,
		"http/services/shop@file": `{"name":"shop@file",` + own + `,"type":"loadbalancer","loadBalancer":{"servers":[
			{"url":"http://192.0.2.1:1"},{"url":"http://192.0.2.2:1","down":"it starts"}],"passHostHeader":false,
			"strategy":"wrr","responseForwarding":{"flushInterval":"100ms"},"passiveHealthCheck":{"failureWindow":"1h0m0s","maxFailedAttempts":2}},"usedBy":["bad@file","shop@file"],
			"serverStatus":{"http://192.0.2.1:1":"UP","http://192.0.2.2:1":"DOWN"}}`,
		"http/middlewares": `[{"name":"limit@file",` + own + `,"type":"ratelimit",
			"rateLimit":{"average":7,"burst":1,"period":"1m0s"},"usedBy":["shop@file"]},
			{"name":"users@file",` + own + `,"type":"basicauth","basicAuth":{"users":["ann:(hidden)"]}}]`,
		"tcp/routers": `[{"name":"db@file",` + own + `,"rule":"HostSNI(` + "`db.test`" + `)","priority":18,
			"entryPoints":["web"],"service":"db","middlewares":["own@file"],"tls":{"passthrough":true},"using":["web"]}]`,
		"tcp/services/db@file": `{"name":"db@file",` + own + `,"type":"loadbalancer","loadBalancer":{"servers":[
			{"address":"192.0.2.3:5432"}]},"usedBy":["db@file"],"serverStatus":{"192.0.2.3:5432":"UP"}}`,
		"tcp/middlewares": `[{"name":"own@file",` + own + `,"type":"ipallowlist",
			"ipAllowList":{"sourceRange":["192.0.2.0/24"]},"usedBy":["db@file"]}]`,
		"udp/routers/dns@file": `{"name":"dns@file",` + own + `,"service":"dns","using":["dns"]}`,
		"udp/services": `[{"name":"dns@file",` + own + `,"type":"loadbalancer","loadBalancer":{"servers":[
			{"address":"192.0.2.4:53"}]},"usedBy":["dns@file"],"serverStatus":{"192.0.2.4:53":"UP"}}]`,
		"udp/routers/none@file": `{"message":"none@file does not exist"}`,
		"overview": `{"http":{"routers":{"total":3,"warnings":0,"errors":1},
			"services":{"total":5,"warnings":0,"errors":0},"middlewares":{"total":2,"warnings":0,"errors":0}},
			"tcp":{"routers":{"total":1,"warnings":0,"errors":0},"services":{"total":1,"warnings":0,"errors":0},
			"middlewares":{"total":1,"warnings":0,"errors":0}},
			"udp":{"routers":{"total":1,"warnings":0,"errors":0},"services":{"total":1,"warnings":0,"errors":0}},
			"features":{"tracing":"","metrics":"Prometheus","accessLog":false},"providers":["File"]}`,
		"entrypoints/dns": `{"name":"dns","address":"127.0.0.1:0/udp","transport":{"lifeCycle":{
			"requestAcceptGraceTimeout":"0s","graceTimeOut":"10s"},"respondingTimeouts":{"readTimeout":"1m0s",
			"writeTimeout":"1m0s","idleTimeout":"3m0s"}},"forwardedHeaders":{},"http":{},
			"http2":{"maxConcurrentStreams":250},"udp":{"timeout":"1m0s"}}`,
		"http/routers?page=0": `{"message":"page=0: want a number from 1"}`,
	} {
		_, got := w.get("http://x.test/api/" + path)
		if !sameJSON(t, got, want) {
			t.Errorf("%s:\n%swant\n%s", path, got, want)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var values [2]any
	for i, text := range []string{a, b} {
		if err := json.Unmarshal([]byte(text), &values[i]); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// TestAPIPages reads the lists as the dashboard does: in pages, by state and by text.
func TestAPIPages(t *testing.T) {
	w := apiWorld(t)
	for path, want := range map[string]string{
		"http/routers":                   "1: api@file bad@file shop@file",
		"http/routers?page=1&per_page=2": "2: api@file bad@file",
		"http/routers?page=2&per_page=2": "1: shop@file",
		"http/routers?status=disabled":   "1: bad@file",
		"http/routers?search=SHOP.test":  "1: shop@file",
		"entrypoints?search=d":           "1: dns",
	} {
		answer, err := w.client.Get("http://x.test/api/" + path)
		if err != nil {
			t.Fatal(err)
		}
		var all []struct{ Name string }
		err = json.NewDecoder(answer.Body).Decode(&all)
		answer.Body.Close()
		got := answer.Header.Get("X-Next-Page") + ":"
		for _, o := range all {
			got += " " + o.Name
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", path, got, err, want)
		}
	}
	if status, _ := w.get("http://x.test/api/http/routers?page=3&per_page=2"); status != http.StatusBadRequest {
		t.Errorf("a page that does not exist: %d", status)
	}
}

// TestRawDataStaysTheSame encodes and decodes all objects, as the process that serves clients
// sends them to the one that controls it.
func TestRawDataStaysTheSame(t *testing.T) {
	w := apiWorld(t)
	_, sent := w.get("http://x.test/api/rawdata")
	var d view.RawData
	if err := json.Unmarshal([]byte(sent), &d); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(d)
	if err != nil || !sameJSON(t, sent, string(again)) {
		t.Errorf("%v\n%s\nwant\n%s", err, again, sent)
	}
	for _, key := range []string{"routers", "middlewares", "services", "tcpRouters", "tcpMiddlewares", "tcpServices",
		"udpRouters", "udpServices"} {
		if !strings.Contains(sent, `"`+key+`":{"`) {
			t.Errorf("the raw data lack %s:\n%s", key, sent)
		}
	}
}

// TestAPISources checks that the API has the files with a problem that concerns all of their objects.
func TestAPISources(t *testing.T) {
	w := apiWorld(t)
	w.gateway.Apply(&model.Config{HTTP: model.HTTP{Routers: map[string]*model.Router{
		"api@file": {Rule: "PathPrefix(`/api`)", Service: "api@internal"}}}}, []status.Status{
		{Kind: "source", Name: "/etc/a@b.yml", State: status.Disabled, Reasons: []string{"parse YAML: why"}}})
	_, got := w.get("http://x.test/api/rawdata")
	var raw view.RawData
	if err := json.Unmarshal([]byte(got), &raw); err != nil {
		t.Fatal(err)
	}
	found := raw.Sources["/etc/a@b.yml"]
	if want := []string{"parse YAML: why"}; len(raw.Sources) != 1 || found.Status != "disabled" ||
		!reflect.DeepEqual(found.Errors, want) {
		t.Errorf("sources: %+v", raw.Sources)
	}
}
