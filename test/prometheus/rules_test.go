package prometheus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// values has a series for each alert: its values on a host where all is well, and its values on one where all is
// wrong. They are those of promtool: `0+60x90` begins at 0 and increases by 60 each minute, 90 times.
var values = []struct{ series, well, wrong string }{
	{`up{job="fairlead"}`, "1x90", "0x90"},
	{"fairlead_scrape_problems", "0x90", "3x90"},
	{"fairlead_apply_failures_total", "0+0.01x90", "0+0.2x90"},
	{`fairlead_attachments{state="failed"}`, "0x90", "1x90"},
	{`fairlead_healed_objects_total{kind="link"}`, "0+0.1x90", "0+1x90"},
	{"fairlead_conntrack_entries", "10x90", "90x90"},
	{"fairlead_conntrack_max_entries", "100x90", "100x90"},
	{"fairlead_ebpf_table_entries", "10x90", "90x90"},
	{"fairlead_ebpf_table_max_entries", "100x90", "100x90"},
	{`fairlead_endpoint_drops_total{endpoint="shop"}`, "0+1x90", "0+600x90"},
	{`fairlead_publish_drops_total{ports="80", proto="tcp"}`, "0+1x90", "0+600x90"},
	{`fairlead_service_up{service="site"}`, "1x90", "0x90"},
	{`fairlead_real_check_ok{service="site", real="10.0.0.2:80"}`, "1x90", "0x90"},
	{`fairlead_real_transitions_total{service="site", real="10.0.0.2:80"}`, "0+0.01x90", "0+1x90"},
	{`fairlead_health_checks_total{result="void"}`, "0+0.1x90", "0+10x90"},
	{`fairlead_cluster_nodes{state="missing"}`, "0x90", "1x90"},
	{"fairlead_cluster_drained_nodes", "0x1600", "1x1600"},
	{"fairlead_cluster_problems", "0x90", "1x90"},
	{"fairlead_cluster_etcd_connected", "1x90", "0x90"},
	{"fairlead_cluster_etcd_accepts_changes", "1x90", "0x90"},
	{`fairlead_cluster_etcd_server_up{endpoint="http://192.0.2.9:2379"}`, "1x90", "0x90"},
	{"fairlead_cluster_frozen", "0x90", "1x90"},
	{"fairlead_cluster_last_change_revision", "50x90", "50x90"},
	{"fairlead_cluster_revision", "52x90", "40x90"},
	{`fairlead_cluster_address_held{address="192.0.2.10"}`, "1x90", "0x90"},
	{"fairlead_cluster_certificate_expiry_timestamp_seconds", "86400x90", "7200x90"},
	{`up{job="fairlead-gateway"}`, "1x90", "0x90"},
	{`traefik_service_server_up{service="site", url="http://10.0.0.2"}`, "1x90", "0x90"},
	{`traefik_service_requests_total{service="site", code="200"}`, "0+600x90", "0+600x90"},
	{`traefik_service_requests_total{service="site", code="502"}`, "0+1x90", "0+600x90"},
	{`traefik_service_request_duration_seconds_bucket{service="site", le="1.2"}`, "0+600x90", "0+1x90"},
	{`traefik_service_request_duration_seconds_bucket{service="site", le="5"}`, "0+600x90", "0+600x90"},
	{`traefik_service_request_duration_seconds_bucket{service="site", le="+Inf"}`, "0+600x90", "0+600x90"},
	{`fairlead_gateway_refused_connections_total{entrypoint="web", limit="maxConnections"}`, "0+1x90", "0+600x90"},
	{"fairlead_gateway_dropped_copies_total", "0x90", "0+1x90"},
	{`traefik_tls_certs_not_after{cn="shop.example.com"}`, "1000000x90", "100000x90"},
}

// ruleTest is the form of promtool's tests.
type ruleTest struct {
	Interval string        `yaml:"interval"`
	Input    []inputSeries `yaml:"input_series"`
	Queries  []ruleQuery   `yaml:"promql_expr_test"`
}

type inputSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type ruleQuery struct {
	Expr    string   `yaml:"expr"`
	Time    string   `yaml:"eval_time"`
	Samples []sample `yaml:"exp_samples"`
}

type sample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

// TestAlertsFire lets promtool evaluate the alerts: none fires on a host where all is well, and each fires on one where
// all is wrong.
func TestAlertsFire(t *testing.T) {
	const firing = `count by (alertname) (ALERTS{alertstate="firing"})`
	well := ruleTest{Interval: "1m", Queries: []ruleQuery{{Expr: firing, Time: "80m"}}}
	wrong := ruleTest{Interval: "1m", Queries: []ruleQuery{{Expr: firing, Time: "80m"}}}
	for _, v := range values {
		well.Input = append(well.Input, inputSeries{v.series, v.well})
		wrong.Input = append(wrong.Input, inputSeries{v.series, v.wrong})
	}
	day := ruleQuery{Expr: `count by (alertname) (ALERTS{alertstate="firing", alertname="FairleadNodeDrained"})`,
		Time: "1500m", Samples: []sample{{`{alertname="FairleadNodeDrained"}`, 1}}}
	wrong.Queries = append(wrong.Queries, day)
	for _, a := range alerts(t) {
		if a.Alert != "FairleadNodeDrained" {
			q := &wrong.Queries[0]
			q.Samples = append(q.Samples, sample{`{alertname="` + a.Alert + `"}`, 1})
		}
	}
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "5m",
		"tests": []ruleTest{well, wrong}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
	out, err := exec.Command("promtool", "check", "rules", rules).CombinedOutput()
	if err != nil || strings.Contains(string(out), "duplicate") {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}
