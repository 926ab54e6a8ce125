// Package look_test opens the dashboard in a real browser: every page, in both colour schemes, on a telephone and on a
// desktop, with and without scripts, and with names that attack it.
package look_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/frontend/dashboard/chart"
	"fairlead/internal/frontend/dashboard/history"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/view"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
	wanted "fairlead/internal/model/gateway"
	"fairlead/internal/plan"
)

// daemon answers what pages ask a daemon. The other calls are nil: a page that makes one fails its test.
type daemon struct {
	admin.AttachmentCalls
	admin.PublishCalls
	admin.SpecCalls
	admin.NetworkCalls
	admin.ServiceCalls
	admin.EventCalls
	mu          sync.Mutex
	views       []api.View
	networks    []model.Network
	unavailable map[string]string
	outbound    map[string]api.OutboundChoice
	services    []api.ServiceView
	events      []api.Event
	stats       api.Stats
	figures     api.History
	gateway     *gateway.Gateway
	// changes counts what change was asked to do.
	changes uint64
	// changed are the requests to change real servers.
	changed []api.RealRequest
}

func (d *daemon) Attachments() []api.View         { return locked(d, &d.views) }
func (d *daemon) Networks() []model.Network       { return locked(d, &d.networks) }
func (d *daemon) Unavailable() map[string]string  { return locked(d, &d.unavailable) }
func (d *daemon) Services() []api.ServiceView     { return locked(d, &d.services) }
func (d *daemon) Events() []api.Event             { return locked(d, &d.events) }
func (d *daemon) Stats(context.Context) api.Stats { return locked(d, &d.stats) }
func (d *daemon) Outbound() map[string]api.OutboundChoice {
	return locked(d, &d.outbound)
}
func (d *daemon) Fill() api.Stats {
	s := locked(d, &d.stats)
	return api.Stats{Conntrack: s.Conntrack, EBPF: s.EBPF}
}
func (d *daemon) History() api.History { return locked(d, &d.figures) }
func (d *daemon) Changes() uint64      { return locked(d, &d.changes) }
func (d *daemon) change(do func())     { d.mu.Lock(); defer d.mu.Unlock(); d.changes++; do() }
func locked[T any](d *daemon, at *T) T { d.mu.Lock(); defer d.mu.Unlock(); return *at }

// FollowEvents reports no new events: the pages find them when they read again.
func (d *daemon) FollowEvents(ctx context.Context) <-chan api.Event {
	none := make(chan api.Event)
	context.AfterFunc(ctx, func() { close(none) })
	return none
}

// Service implements admin.ServiceCalls.
func (d *daemon) Service(name string) (api.ServiceView, error) {
	for _, s := range d.Services() {
		if s.Name == name {
			return s, nil
		}
	}
	return api.ServiceView{}, api.Faultf(api.NotFound, "service %s does not exist", name)
}

// ChangeReal implements admin.ServiceCalls. It only notes the request.
func (d *daemon) ChangeReal(r api.RealRequest) (api.Result, error) {
	d.change(func() { d.changed = append(d.changed, r) })
	return api.Result{Changed: true}, nil
}

// Ask implements admin.GatewayCalls with a real gateway that serves no client.
func (d *daemon) Ask(_ context.Context, path string) (json.RawMessage, error) {
	u, err := url.Parse(path)
	if err != nil {
		return nil, err
	}
	if u.Path == "/api/rawdata" {
		objects := d.gateway.Objects()
		if u.Query().Has(view.ParamWrong) {
			objects = objects.Wrong()
		}
		return json.Marshal(objects)
	}
	answer, err := d.gateway.Explain(u.Query().Get("entryPoint"), "GET", u.Query().Get("url"))
	if err != nil {
		return nil, &api.Fault{Code: api.Invalid, Err: err}
	}
	return json.Marshal(answer)
}

// cluster is a cluster of two nodes.
type cluster struct {
	admin.ClusterCalls
	status api.ClusterStatus
}

func (c cluster) Status(context.Context, bool) (api.ClusterStatus, error) { return c.status, nil }

// Objects implements admin.ClusterCalls.
func (c cluster) Objects() ([]api.ClusterObject, error) {
	there, here := c.status.Nodes[1].Name, c.status.Nodes[0].Name
	at := []netip.Addr{netip.MustParseAddr("172.30.9.2")}
	return []api.ClusterObject{
		{Node: there, Kind: api.ClusterReal, Of: "web", Name: "web-9", Addresses: at, Port: 8080},
		{Node: there, Kind: api.ClusterEndpoint, Of: "shop", Name: "web-9", Addresses: at},
		{Node: here, Kind: api.ClusterEndpoint, Of: "shop", Name: "web-1", Addresses: at}}, nil
}

// addresses has the virtual addresses of the cluster.
type addresses struct {
	admin.ClusterAddressCalls
	all []api.ClusterAddress
}

func (a addresses) List() ([]api.ClusterAddress, error) { return a.all, nil }

// routers has the sessions with routers of the cluster.
type routers struct{ admin.ClusterBGPCalls }

func (routers) Peers() ([]api.ClusterBGPSession, error) {
	return []api.ClusterBGPSession{{ClusterBGPPeer: api.ClusterBGPPeer{Address: netip.MustParseAddr("192.0.2.1"),
		AS:      64512,
		LocalAS: 64513, BFD: true}, State: "established", Since: time.Now().Add(-time.Hour), BFDState: "up"}}, nil
}

// newDaemon returns a daemon with objects in every state, whose names come from name.
func newDaemon(t testing.TB, name func(string) string) *daemon {
	now := time.Now()
	d := &daemon{unavailable: map[string]string{name("lab"): "its parent eth7 does not exist"}}
	d.networks = []model.Network{
		{Name: name("shop"), Driver: "bridge", Outbound: model.OutboundAuto,
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/24")}}},
		{Name: name("lab"), Driver: "macvlan", Parent: "eth7"}}
	d.outbound = map[string]api.OutboundChoice{name("shop"): {Chosen: "nft",
		Why: name("rule 3 of chain DOCKER-USER would decide")}}
	ports := []model.Publish{{Endpoint: name("web-1"), Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(8080),
		Ports: model.Port(80)}, {Endpoint: name("web-1"), Via: model.ViaProxy, Proto: model.UDP,
		HostPorts: model.PortRange{First: 9000, Last: 9010}, Ports: model.PortRange{First: 9000, Last: 9010}}}
	view := func(endpoint, network string, at string, status api.Status, problem string) api.View {
		v := api.View{Driver: "bridge", Status: status, Problem: problem}
		v.Name, v.Network, v.Sandbox, v.Ref = name(endpoint), name(network), "/run/netns/x", name(endpoint)
		v.Addresses = []netip.Addr{netip.MustParseAddr(at)}
		return v
	}
	d.views = []api.View{view("web-1", "shop", "172.30.0.2", api.Up, ""), view("web-2", "shop", "172.30.0.3",
		api.Waiting, ""),
		view("db-1", "lab", "172.31.0.2", api.Broken, "its sandbox has no room for another link")}
	d.views[0].Publishes = []api.PublishedView{{Publish: ports[0]}, {Publish: ports[1],
		Problem: "another process has port 9003"}}
	flows := uint64(17)
	real := func(at string, state api.RealStatus, cause, found string) api.RealView {
		return api.RealView{Address: netip.MustParseAddr(at), Port: 80, Weight: 1, Share: 100, Endpoint: name("web-1"),
			State: state, Cause: cause, Since: now.Add(-3 * time.Hour), Checked: now.Add(-2 * time.Second),
			Found:   found,
			Latency: 3 * time.Millisecond, Flows: &flows}
	}
	service := model.VirtualService{Name: name("web"), Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")},
		Ports: []model.PortRange{model.Port(80)}, Proto: model.TCP, Scheduler: "wrr", Plane: "ebpf"}
	draining := real("172.30.0.4", api.RealDraining, "drained by its administrator", "status 200")
	draining.Deadline = now.Add(4 * time.Minute)
	d.services = []api.ServiceView{{VirtualService: service, PlaneInUse: "ebpf", Status: api.ServiceUp,
		Servers: []api.RealView{real("172.30.0.2", api.RealUp, "", "status 200"), real("172.30.0.3", api.RealDown,
			"its check fails", name("GET http://172.30.0.3/health: status 503: the database does not answer")),
			draining}}}
	down := service
	down.Name, down.Ports = name("mail"), []model.PortRange{model.Port(25)}
	d.services = append(d.services, api.ServiceView{VirtualService: down, PlaneInUse: "nft", Status: api.ServiceDown,
		Problem: "no real server is up", Servers: []api.RealView{real("172.30.0.9", api.RealDown, "its check fails",
			"dial tcp 172.30.0.9:25: connection refused")}})
	for i, e := range []api.Event{{Kind: api.Healed, Object: name("rule 7 of table fairlead"), Commands: []string{
		"nft add rule ip fairlead prerouting tcp dport 8080 dnat to 172.30.0.2:80"}, By: "firewalld"},
		{Kind: api.RealIsDown, Object: "service " + name("web"), Detail: name("172.30.0.3:80: status 503")},
		{Kind: api.NetworkUnavailable, Object: "network " + name("lab"), Detail: "its parent eth7 does not exist"}} {
		e.Time = now.Add(time.Duration(i-9) * time.Minute)
		d.events = append(d.events, e)
	}
	traffic := counter.Traffic{Bytes: counter.InOut{In: 3 << 30, Out: 17 << 30}, Packets: counter.InOut{In: 9e6,
		Out: 2e7},
		Drops: counter.InOut{In: 3}}
	d.stats = api.Stats{Networks: []api.NetworkStats{{Network: name("shop"), Driver: "bridge", Traffic: &traffic}},
		Endpoints: []api.EndpointStats{{Endpoint: name("web-1"), Network: name("shop"), Driver: "bridge",
			Traffic: &traffic}},
		Publishes: []api.PublishStats{{Network: name("shop"), Publish: ports[0], Flows: &flows, Live: &flows}},
		Conntrack: &counter.Fill{Entries: 58000, Max: 65536},
		Problems:  []string{name("read the counters of eth7: timeout")}}
	d.figures = figures()
	d.gateway = newGateway(t, name)
	return d
}

// half has half of the greatest value of a figure.
var half = map[string]float64{history.RequestSeconds: 0.03, history.CPUKernel: 0.12, history.CPUProxy: 0.02,
	history.CPUGateway: 0.04, history.BytesIn: 2e6, history.BytesOut: 9e6, history.RequestBytes: 1e5,
	history.ResponseBytes: 4e6, history.ServerErrors: 0.2, history.ClientErrors: 1.1, history.Drops: 0.1}

// figures are those of an hour, with a pause.
func figures() api.History {
	h := api.History{Series: map[string][]api.Figure{}}
	for age := 3590.0; age >= 0; age -= 10 {
		h.Ages = append(h.Ages, age)
		for i, f := range history.Host() {
			v := api.Figure((1 + math.Sin(age/600+float64(i))) * cmp.Or(half[f.Key], 40))
			if f.Key == history.Conntrack {
				v = 0.88
			}
			if age > 1500 && age < 1800 {
				v = api.Unknown()
			}
			h.Series[f.Key] = append(h.Series[f.Key], v)
		}
	}
	return h
}

// newGateway returns a gateway with routers in every state, that serves no client.
func newGateway(t testing.TB, name func(string) string) *gateway.Gateway {
	t.Helper()
	g, err := gateway.New(wanted.Static{EntryPoints: []wanted.EntryPoint{{Name: "web", Address: ":80"},
		{Name: "websecure", Address: ":443"}}, Default: []string{"web", "websecure"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	g.Apply(gatewayConfig(name), nil)
	return g
}

// gatewayConfig has routers in every state.
func gatewayConfig(name func(string) string) *wanted.Config {
	servers := &wanted.Service{LoadBalancer: &wanted.LoadBalancer{Servers: []wanted.Server{
		{URL: "http://192.0.2.1:80"}, {URL: "http://192.0.2.2:80", Down: name("it starts")}}}}
	at := func(text string) string { return name(text) + "@docker" }
	return &wanted.Config{HTTP: wanted.HTTP{
		Routers: map[string]*wanted.Router{
			at("shop"): {Rule: "Host(`shop.example.com`) && PathPrefix(`/`)", Service: at("shop"),
				TLS:         &wanted.RouterTLS{},
				Middlewares: []string{at("limit")}},
			at("wrong"):  {Rule: "Host(`" + name("wrong.example.com"), Service: at("shop")},
			at("absent"): {Rule: "Host(`absent.example.com`)", Service: at("none")}},
		Middlewares: map[string]*wanted.Middleware{at("limit"): {RateLimit: &wanted.RateLimit{Average: 7,
			Period: time.Minute}}},
		Services: map[string]*wanted.Service{at("shop"): servers}}}
}

// clusterOf returns the cluster's part of a daemon.
func clusterOf(name func(string) string) (cluster, addresses) {
	now := time.Now()
	vip := api.ClusterAddress{ClusterAddressSpec: api.ClusterAddressSpec{
		Address: netip.MustParsePrefix("192.0.2.10/24"),
		Hold:    3 * time.Second}, Holder: name("node-a"), Since: now.Add(-time.Hour), Epoch: 3, Answers: true,
		Lease: 2 * time.Second, Renewed: time.Second}
	lost := vip
	lost.Address, lost.Holder, lost.Answers, lost.Lease = netip.MustParsePrefix("192.0.2.11/24"), "", false, 0
	node := api.ClusterNodeStatus{ID: "1", Name: name("node-a"),
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Port:      7947, Version: "0.9.0", Joined: now.Add(-48 * time.Hour), Alive: true, Since: now.Add(-24 * time.Hour)}
	gone := node
	gone.ID, gone.Name, gone.Alive, gone.Drained = "2", name("node-b"), false, true
	gone.Problems = []string{name("network blue: no block is free")}
	status := api.ClusterStatus{Name: name("default"), ID: "c1", Node: node.Name, Applied: 900, LastChange: 901,
		CertificateExpires: now.Add(30 * 24 * time.Hour), Nodes: []api.ClusterNodeStatus{node, gone},
		Addresses: []api.ClusterAddress{vip, lost}, Etcd: api.EtcdHealth{Connected: true, Revision: 901,
			Servers: []api.EtcdServer{{Endpoint: "https://192.0.2.7:2379", Version: "3.5.16", Leader: true,
				Size: 1 << 20},
				{Endpoint: "https://192.0.2.8:2379", Problem: "connection refused"}}}}
	return cluster{status: status}, addresses{all: status.Addresses}
}

// emptyDaemon serves a daemon that has nothing, and is no member of a cluster.
func emptyDaemon(t testing.TB) *admin.Client {
	d := &daemon{}
	return admin.NewClient(admintest.Serve(t, admin.Daemon{Attachments: d, Publishes: d, Specs: d, Networks: d,
		Services: d, Events: d, Stats: d}))
}

// mortal is a test whose daemon can be killed before the test ends. Its dashboard stays.
type mortal struct {
	testing.TB
	// kill ends the daemon.
	kill func()
}

// Cleanup implements testing.TB. The first one that serveHost registers is that of the daemon.
func (m *mortal) Cleanup(f func()) {
	if m.kill == nil {
		m.kill = sync.OnceFunc(f)
		f = m.kill
	}
	m.TB.Cleanup(f)
}

// serveHost serves the dashboard of a daemon on loopback until the test ends. It returns its address.
func serveHost(t testing.TB, d *daemon, name func(string) string, change ...func(*dashboard.Options)) (address string) {
	t.Helper()
	c, a := clusterOf(name)
	client := admin.NewClient(admintest.Serve(t, admin.Daemon{Attachments: d, Publishes: d, Specs: d, Networks: d,
		Services: d, Events: d, Stats: d,
		History: d, Gateway: d, Cluster: c, ClusterAddresses: a, ClusterBGP: routers{}}))
	o := dashboard.Options{Daemon: client, Host: newRoom(name), Charts: chart.Live(client.History), Version: "test",
		Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	return show(t, o)
}

// show serves a dashboard on loopback until the test ends.
func show(t testing.TB, o dashboard.Options) (address string) {
	h := dashboard.New(o)
	server := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(); server.Close() })
	return server.URL + o.Base
}

// room is a host that is examined: it has given ports and one explanation.
type room struct {
	host        doctor.Host
	explanation flow.Explanation
}

func (r room) Host(context.Context) (doctor.Host, error)  { return r.host, nil }
func (r room) Kernel(context.Context) (plan.Facts, error) { return plan.Facts{}, nil }
func (r room) Flow(context.Context, flow.Flow, *probe.Options) (flow.Explanation, error) {
	return r.explanation, nil
}

// newRoom returns a host with a published port, and the flow of a client to it.
func newRoom(name func(string) string) room {
	r := room{host: doctor.Host{Ports: []ports.Port{{Proto: model.TCP, Addresses: []netip.Addr{netip.IPv4Unspecified(),
		netip.IPv6Unspecified()}, Ports: model.Port(8080), Process: &ports.Process{PID: 7, Command: name("nginx")},
		Sandbox: name("shop"), Network: name("web"), Modes: []ports.Mode{ports.NAT},
		To:      netip.MustParseAddr("10.0.0.2"),
		ToPorts: model.Port(80)}}}}
	r.explanation = flow.Explanation{Flow: "192.0.2.7 -> :8080", Proto: model.TCP,
		Source:      netip.MustParseAddr("192.0.2.7"),
		Destination: netip.MustParseAddrPort("192.0.2.1:8080"), Outcome: flow.Delivered,
		Verdict: name("delivered to nginx"),
		Hops: []flow.Hop{
			{Number: 1, Kind: flow.Begin, Where: "host", Link: "eth0", What: "arrives from the LAN"},
			{Number: 2, Kind: flow.NAT, Where: "host", What: "translated to 10.0.0.2:80",
				By: name("inet fairlead prerouting: tcp dport 8080 dnat to 10.0.0.2:80"), Seen: "seen"},
			{Number: 3, Kind: flow.Filter, Where: "host", What: "accepted", By: "inet filter forward: policy accept"},
			{Number: 4, Kind: flow.Link, Where: name("shop"), Link: "eth0", What: "enters the sandbox", Seen: "seen"},
			{Number: 5, Kind: flow.Delivery, Where: name("shop"), What: name("nginx (7) listens at 0.0.0.0:80")}}}
	return r
}

// plain keeps names as they are.
func plain(name string) string { return name }

// attacking makes of each name one that attacks whoever shows it.
func attacking(name string) string {
	return name + `"><script>document.title="owned"</script><img src=x onerror=alert(1)>` + "\u202eevil\u202c\u200f\x1b[31m" +
		`{{.}}javascript:alert(1)` + strings.Repeat("W", 10_000)
}
