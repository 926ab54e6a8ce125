package metrics

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/health"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// fixed is a source that always returns the same counters.
type fixed api.Stats

func (f fixed) Stats(context.Context) api.Stats { return api.Stats(f) }

func some(n uint64) *uint64 { return &n }

func both(n counter.InOut) *api.Counted { return &api.Counted{In: &n.In, Out: &n.Out} }

// everything returns counters that give each metric at least once.
func everything() fixed {
	t := counter.Traffic{Bytes: counter.InOut{In: 1000, Out: 2000}, Packets: counter.InOut{In: 10, Out: 20},
		Drops: counter.InOut{In: 1, Out: 2}}
	return fixed{
		Networks: []api.NetworkStats{{Network: "shop", Driver: model.DriverBridge, Traffic: &t},
			{Network: "host", Driver: model.DriverHost}},
		Endpoints: []api.EndpointStats{
			{Endpoint: "web", Network: "shop", Driver: model.DriverBridge, Traffic: &t},
			{Endpoint: "metal", Network: "host", Driver: model.DriverHost}},
		Publishes: []api.PublishStats{
			{Network: "shop", Publish: model.Publish{Endpoint: "web", Via: model.ViaEBPF, Proto: model.TCP,
				HostPorts: model.PortRange{First: 8000, Last: 8999}},
				Bytes: &t.Bytes, Packets: &t.Packets, Drops: &t.Drops, Flows: some(7), Live: some(3)},
			{Network: "shop", Publish: model.Publish{Endpoint: "web", Via: model.ViaNAT, Proto: model.UDP,
				HostAddr: netip.MustParseAddr("192.0.2.1"), HostPorts: model.Port(53)},
				Flows: some(5)},
			{Network: "host", Publish: model.Publish{Endpoint: "metal", Via: model.ViaSocket, Proto: model.TCP,
				HostPorts: model.Port(443)}}},
		Services: []api.ServiceStats{{Service: "site", Status: api.ServiceUp, Reals: []api.RealStats{
			{Real: netip.MustParseAddrPort("10.0.0.2:80"), State: api.RealUp, Weight: 3, Transitions: 2, Live: some(4),
				Flows: some(9), Packets: both(t.Packets), Bytes: both(t.Bytes),
				Checks: &health.Counts{Passed: 7, Void: 1,
					Failed: map[health.Failure]uint64{health.Refused: 2, health.Timeout: 1}, Ejected: 1,
					Busy: 2 * time.Second, Last: time.Second / 4, OK: true}},
			{Real: netip.MustParseAddrPort("[fd00::3]:0"), State: api.RealDown, Weight: 1}}}},
		Checks:      health.Counters{Checks: 10, Failed: 3, Void: 1},
		Attachments: map[api.Status]int{api.Up: 2, api.Waiting: 1, api.Broken: 0},
		Proxy: &model.ProxyStats{BytesIn: 1, BytesOut: 2, Accepted: 3, Opened: 4, DatagramsIn: 5, DatagramsOut: 6,
			Connections: 7, Flows: 8},
		EBPF: &counter.Fill{Entries: 9, Max: 65535}, Conntrack: &counter.Fill{Entries: 10, Max: 262144},
	}
}

// cluster is a host that is a member of a cluster, or of none.
type cluster struct{ *api.ClusterStatus }

func (c cluster) Status(context.Context, bool) (api.ClusterStatus, error) {
	if c.ClusterStatus == nil {
		return api.ClusterStatus{}, api.Faultf(api.NotFound, "this host belongs to no cluster")
	}
	return *c.ClusterStatus, nil
}

// member returns a host whose cluster gives each metric at least once.
func member() cluster {
	return cluster{&api.ClusterStatus{Node: "host1", CertificateExpires: time.Unix(1800000000, 0),
		Nodes: []api.ClusterNodeStatus{{Name: "host1", Alive: true, Problems: []string{"network web: no"}},
			{Name: "host2", Alive: true, Drained: true}, {Name: "host3"}}, Applied: 412, LastChange: 409,
		Addresses: []api.ClusterAddress{
			{ClusterAddressSpec: api.ClusterAddressSpec{Address: netip.MustParsePrefix("192.0.2.10/24")},
				Holder: "host1", Answers: true, Lease: 2500 * time.Millisecond, Epoch: 4},
			{ClusterAddressSpec: api.ClusterAddressSpec{Address: netip.MustParsePrefix("2001:db8::10/64")},
				Holder: "host2"}},
		Etcd: api.EtcdHealth{Connected: true, Revision: 500, Frozen: "older records",
			Servers: []api.EtcdServer{{Endpoint: "http://192.0.2.7:2379"},
				{Endpoint: "http://192.0.2.8:2379", Problem: "no answer"}}}}}
}

// TestMetricsWithoutCluster scrapes a host that belongs to no cluster.
func TestMetricsWithoutCluster(t *testing.T) {
	h := New("1.2.3").Handler(everything(), cluster{}, slog.New(slog.DiscardHandler))
	if text := scrape(t, h); strings.Contains(text, "fairlead_cluster_") ||
		!strings.Contains(text, "fairlead_service_up") {
		t.Errorf("the metrics are\n%s", text)
	}
}

// handler returns a handler for the source, and its metrics.
func handler(t testing.TB, from Source) (http.Handler, *Metrics) {
	t.Helper()
	m := New("1.2.3")
	return m.Handler(from, member(), slog.New(slog.DiscardHandler)), m
}

func scrape(t testing.TB, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetricsText(t *testing.T) {
	h, m := handler(t, everything())
	m.Applied(20*time.Millisecond, nil)
	m.Applied(time.Second, errors.New("no"))
	m.Healed("link", 2)
	text := scrape(t, h)
	for _, line := range []string{
		`fairlead_service_up{service="site"} 1`,
		`fairlead_service_real_servers{service="site",state="down"} 1`,
		`fairlead_real_up{service="site",real="[fd00::3]"} 0`,
		`fairlead_real_live_flows{service="site",real="10.0.0.2:80"} 4`,
		`fairlead_real_bytes_total{service="site",real="10.0.0.2:80",direction="out"} 2000`,
		`fairlead_real_checks_total{service="site",real="10.0.0.2:80",result="failed"} 3`,
		`fairlead_real_check_failures_total{service="site",real="10.0.0.2:80",cause="refused"} 2`,
		`fairlead_real_check_ok{service="site",real="10.0.0.2:80"} 1`,
		`fairlead_real_check_duration_seconds{service="site",real="10.0.0.2:80"} 0.25`,
		`fairlead_real_check_seconds_total{service="site",real="10.0.0.2:80"} 2`,
		`fairlead_real_ejections_total{service="site",real="10.0.0.2:80"} 1`,
		`fairlead_health_checks_total{result="passed"} 6`,
		`fairlead_network_bytes_total{network="shop",direction="in"} 1000`,
		`fairlead_endpoint_drops_total{network="shop",endpoint="web",direction="out"} 2`,
		`fairlead_publish_bytes_total{network="shop",endpoint="web",proto="tcp",host="",ports="8000-8999",via="ebpf",direction="out"} 2000`,
		`fairlead_publish_flows_total{network="shop",endpoint="web",proto="udp",host="192.0.2.1",ports="53",via="nat"} 5`,
		`fairlead_publish_live_flows{network="shop",endpoint="web",proto="tcp",host="",ports="8000-8999",via="ebpf"} 3`,
		`fairlead_proxy_live_sessions{proto="udp"} 8`,
		`fairlead_attachments{state="waiting"} 1`,
		`fairlead_ebpf_table_max_entries 65535`,
		`fairlead_apply_duration_seconds_count 2`,
		`fairlead_apply_failures_total 1`,
		`fairlead_healed_objects_total{kind="link"} 2`,
		`fairlead_cluster_nodes{state="alive"} 2`,
		`fairlead_cluster_nodes{state="missing"} 1`,
		`fairlead_cluster_drained_nodes 1`,
		`fairlead_cluster_problems 1`,
		`fairlead_cluster_revision 412`,
		`fairlead_cluster_last_change_revision 409`,
		`fairlead_cluster_frozen 1`,
		`fairlead_cluster_etcd_connected 1`,
		`fairlead_cluster_etcd_server_up{endpoint="http://192.0.2.8:2379"} 0`,
		`fairlead_cluster_certificate_expiry_timestamp_seconds 1.8e+09`,
		`fairlead_cluster_address_held{address="192.0.2.10"} 1`,
		`fairlead_cluster_address_held{address="2001:db8::10"} 0`,
		`fairlead_cluster_address_lease_seconds{address="192.0.2.10"} 2.5`,
		`fairlead_cluster_address_epoch{address="192.0.2.10"} 4`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	if strings.Contains(text, `via="socket"`) || strings.Contains(text, `endpoint="metal"`) {
		t.Error("there are series for counters that do not exist")
	}
	if strings.Contains(text, `cause="tls"`) || strings.Contains(text, `real="[fd00::3]",result=`) {
		t.Error("there are series for causes that have not occurred")
	}
	for _, metric := range list() {
		if !strings.Contains(text, "# TYPE "+metric.Name+" "+metric.Type+"\n") {
			t.Errorf("no metric %s of type %s", metric.Name, metric.Type)
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (fairlead_\w+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(table(), "`"+line[1]+"`") {
			t.Errorf("%s is not listed", line[1])
		}
	}
}

// TestMetricsPassTheLinter runs Prometheus's linter, and lets its library search for
// duplicate series.
func TestMetricsPassTheLinter(t *testing.T) {
	_, m := handler(t, everything())
	m.Healed("link", 1)
	problems, err := testutil.GatherAndLint(prometheus.Gatherers{m.registry,
		collector{everything(), slog.New(slog.DiscardHandler)},
		clusterCollector{member(), slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestGuideListsAllMetrics compares the guide's table with Table.
func TestGuideListsAllMetrics(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guide/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), table()) {
		t.Errorf("docs/guide/monitoring.md does not contain this table:\n%s", table())
	}
}

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]string{
		"":                         "",
		"unix:/run/fairlead/m":     "",
		"127.0.0.1:9464":           "",
		"[::1]:9464":               "",
		"localhost:9464":           "",
		":9464":                    "without TLS or a credential",
		"0.0.0.0:9464":             "without TLS or a credential",
		"[::]:9464":                "without TLS or a credential",
		"192.0.2.1:9464":           "without TLS or a credential",
		"unix:":                    "the path is missing",
		"metrics.example.org:9464": "neither unix:PATH nor",
		"9464":                     "neither unix:PATH nor",
	} {
		err := Check(address, "")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
	if err := Check("127.0.0.1:9464", "adm"); err == nil {
		t.Error("a group with a TCP address: no error")
	}
}

func TestMetricsOnAUnixSocket(t *testing.T) {
	for group, mode := range map[string]os.FileMode{"": 0o600, "1": 0o660} {
		path := filepath.Join(t.TempDir(), "m")
		l, err := Listen("unix:"+path, group)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != mode {
			t.Errorf("group %q: %v %v, want mode %v", group, st.Mode(), err, mode)
		}
		if got := fmt.Sprint(st.Sys().(*syscall.Stat_t).Gid); got != cmp.Or(group, fmt.Sprint(os.Getegid())) {
			t.Errorf("group %q: the socket belongs to group %s", group, got)
		}
		h, _ := handler(t, everything())
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- Serve(ctx, l, h) }()
		if text := get(t, path, "/metrics"); !strings.Contains(text, "fairlead_build_info") {
			t.Errorf("/metrics: got %.200s", text)
		}
		if text := get(t, path, "/"); !strings.Contains(text, "not found") {
			t.Errorf("/: got %.200s", text)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket was not removed: %v", err)
		}
	}
}

// get makes a request on a unix socket.
func get(t *testing.T, socket, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return net.Dial("unix", socket)
	}}}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://fairlead" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// counted counts the open connections that it has accepted.
type counted struct {
	net.Listener
	open, most atomic.Int64
}

type countedConn struct {
	net.Conn
	close func()
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.most.Store(max(c.most.Load(), c.open.Add(1))) // Only one goroutine accepts.
	return countedConn{conn, sync.OnceFunc(func() { c.open.Add(-1) })}, nil
}

func (c countedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// TestConnectionsAreLimited opens twice as many connections as are allowed. The others are served after the first
// ones have ended.
func TestConnectionsAreLimited(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Listener: l}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- Serve(ctx, c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}()
	var conns []net.Conn
	for range 2 * maxConns {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	ask := func(conn net.Conn) {
		t.Helper()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns[:maxConns] {
		ask(conn)
	}
	for _, conn := range conns[:maxConns] {
		conn.Close()
	}
	for _, conn := range conns[maxConns:] {
		ask(conn)
	}
	if most := c.most.Load(); most > maxConns {
		t.Errorf("%d connections were open at once, want at most %d", most, maxConns)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// list returns all metrics of this package.
func list() []Metric {
	return slices.Concat(collected, ofServices, ofCluster, []Metric{applySeconds, applyFailures, healed, buildInfo})
}

// table returns the metrics as a table in Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | what |\n|---|---|---|---|\n")
	for _, m := range list() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help)
	}
	return b.String()
}

// ofCluster are the metrics of the cluster, which are read at each scrape.
var ofCluster = []Metric{clusterNodes, clusterDrained, clusterProblems, clusterRevision, clusterLastChange,
	clusterFrozen, clusterConnected, clusterWritable,
	clusterServerUp, clusterExpires, addressHeld, addressLease, addressEpoch}

// ofServices are the metrics of virtual services, which are read at each scrape.
var ofServices = []Metric{serviceUp, serviceReals, realUp, realWeight, realTransitions, realEjections, realChecks,
	realFailures, realCheckOK, realCheckLast, realCheckBusy, realFlows, realLive, realBytes, realPackets, healthChecks}

// collected are the metrics that are read at each scrape. The others are counted when
// something happens.
var collected = []Metric{
	networkBytes, networkPackets, networkDrops, endpointBytes, endpointPackets, endpointDrops,
	publishBytes, publishPackets, publishDrops, publishFlows, publishLive,
	proxyBytes, proxyDatagrams, proxyConnections, proxyFlows, proxyLive,
	ebpfEntries, ebpfMax, conntrackEntries, conntrackMax, attachments, scrapeProblems,
}
