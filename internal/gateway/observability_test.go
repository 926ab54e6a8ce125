package gateway_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestObservability leaves requests out of the access log and of the metrics by router,
// and by entry point.
func TestObservability(t *testing.T) {
	yes, no := true, false
	path := filepath.Join(t.TempDir(), "access.log")
	web := model.EntryPoint{Name: "web", Address: "127.0.0.1:0", Observability: &model.Observability{AccessLogs: &no}}
	static := counted()
	static.AccessLog, static.EntryPoints = &model.AccessLog{FilePath: path}, []model.EntryPoint{web}
	w := newWorld(t, static)
	quiet := func(o *model.Observability, host string) *model.Router {
		return &model.Router{Rule: "Host(`" + host + "`)", Service: "s@file", Observability: o}
	}
	w.apply(map[string]*model.Router{
		"default@file":   quiet(nil, "default.test"),
		"logged@file":    quiet(&model.Observability{AccessLogs: &yes}, "logged.test"),
		"uncounted@file": quiet(&model.Observability{AccessLogs: &yes, Metrics: &no}, "uncounted.test"),
	}, map[string]*model.Service{"s@file": server(t, named("hello"))})
	for _, host := range []string{"default.test", "logged.test", "uncounted.test", "unknown.test"} {
		w.get("http://" + host + "/" + host)
	}
	_, metrics := w.get("http://x.test/metrics")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]bool{"default": {false, true}, "logged": {true, true},
		"uncounted": {true, false}} {
		if got := strings.Contains(string(text), "/"+name+".test"); got != want[0] {
			t.Errorf("%s: logged is %v:\n%s", name, got, text)
		}
		if got := strings.Contains(metrics, `router="`+name+`@file"`); got != want[1] {
			t.Errorf("%s: counted is %v:\n%s", name, got, metrics)
		}
	}
	if strings.Contains(string(text), "unknown") || strings.Contains(string(text), "/metrics") {
		t.Errorf("the log has a request without router, or to the gateway itself:\n%s", text)
	}
	if want := `traefik_entrypoint_requests_total{code="200",entrypoint="web",method="GET",protocol="http"} 2`; !strings.
		Contains(metrics, want) {
		t.Errorf("the metrics lack %s:\n%s", want, metrics)
	}
}

// TestTraceContext checks that the W3C trace context of a request reaches the server.
func TestTraceContext(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": server(t, func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprint(rw, r.Header.Get("Traceparent"), " ", r.Header.Get("Tracestate"), " ", r.Header.Get("Baggage"))
		})})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, body := w.get("http://a.test/", "traceparent", parent, "tracestate", "v=1", "baggage", "a=b"); body !=
		parent+" v=1 a=b" {
		t.Errorf("the server gets %q", body)
	}
}
