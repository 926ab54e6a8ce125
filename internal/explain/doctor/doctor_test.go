package doctor_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/facts"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
)

// TestFailedAttachments: an attachment or publish that the daemon could not apply
// is a problem.
func TestFailedAttachments(t *testing.T) {
	v := api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: "web", Network: "lan"},
		Ref: "container:web"},
		Status: api.Broken, Problem: "no such parent"}
	v.Publishes = []api.PublishedView{
		{Publish: model.Publish{Endpoint: "web", Proto: model.TCP, HostPorts: model.Port(80), Ports: model.Port(80)},
			Problem: "port is taken"},
		{Publish: model.Publish{Endpoint: "web", Proto: model.TCP, HostPorts: model.Port(81), Ports: model.Port(81)}},
	}
	found := doctor.Examine(doctor.Host{Attachments: []api.View{v}, Daemon: true})
	if len(found) != 2 || found[0].Severity != doctor.Problem || !strings.Contains(found[0].Seen, "no such parent") ||
		!strings.Contains(found[1].Fix, "fairlead unpublish web 80/tcp") {
		t.Errorf("found %+v", found)
	}
}

// TestCluster: what keeps a host from being a working node is a finding.
func TestCluster(t *testing.T) {
	now := time.Now()
	valid := now.Add(20 * time.Hour)
	connected := api.EtcdHealth{Connected: true}
	for want, c := range map[string]*api.ClusterStatus{
		"":                        {CertificateExpires: valid, Etcd: connected},
		"was removed":             {CertificateExpires: valid, Etcd: connected, Problem: "it was removed"},
		"etcd does not answer":    {CertificateExpires: valid},
		"fairlead cluster accept": {CertificateExpires: valid, Etcd: api.EtcdHealth{Connected: true, Frozen: "older"}},
		"was not renewed":         {CertificateExpires: now.Add(time.Hour), Etcd: connected},
		"old faults": {CertificateExpires: valid, Etcd: api.EtcdHealth{Connected: true,
			Servers: []api.EtcdServer{{Endpoint: "http://192.0.2.9:2379"}, {Warnings: []string{"old faults"}}}}},
	} {
		found := doctor.Examine(doctor.Host{Cluster: c, Now: now, Daemon: true})
		if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || found[0].Check != "cluster" ||
			!strings.Contains(found[0].Seen+found[0].Fix, want)) {
			t.Errorf("%q: found %+v", want, found)
		}
	}
}

// TestVirtualAddresses: an address that no node, two hosts, or not this node can have is a finding.
func TestVirtualAddresses(t *testing.T) {
	now := time.Now()
	held := api.ClusterAddress{ClusterAddressSpec: api.ClusterAddressSpec{Candidates: []string{"host1", "host2"},
		Address: netip.MustParsePrefix("192.0.2.10/24")}, Holder: "host2", Lease: time.Second}
	with := func(change func(*api.ClusterAddress)) *api.ClusterStatus {
		v := held
		change(&v)
		return &api.ClusterStatus{Node: "host1", CertificateExpires: now.Add(20 * time.Hour),
			Etcd: api.EtcdHealth{Connected: true}, Addresses: []api.ClusterAddress{v}}
	}
	for _, c := range []struct {
		status *api.ClusterStatus
		want   string
	}{
		{with(func(*api.ClusterAddress) {}), ""},
		{with(func(v *api.ClusterAddress) { v.Lease = 0 }), "no node answers for the virtual address 192.0.2.10"},
		{with(func(v *api.ClusterAddress) { v.Lease, v.Announce = 0, "bgp" }), ""},
		{with(func(v *api.ClusterAddress) { v.Lease, v.Removed = 0, true }), ""},
		{with(func(v *api.ClusterAddress) { v.Conflict = &api.AddressConflictAt{MAC: "02:00:00:00:00:01", At: now} }),
			"02:00:00:00:00:01 answered for 192.0.2.10"},
		{with(func(v *api.ClusterAddress) { v.Conflict = &api.AddressConflictAt{At: now.Add(-2 * time.Hour)} }), ""},
		{with(func(v *api.ClusterAddress) { v.Barred = "link eth0 has no carrier" }),
			"192.0.2.10: link eth0 has no carrier"},
		{with(func(v *api.ClusterAddress) {
			v.Barred, v.Candidates = "the node is not a candidate", []string{"host2"}
		}), ""},
	} {
		found := doctor.Examine(doctor.Host{Cluster: c.status, Now: now, Daemon: true})
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0].Check != "virtual-address" ||
			!strings.Contains(found[0].Seen, c.want)) {
			t.Errorf("%q: found %+v", c.want, found)
		}
	}
}

// TestServices: a service that failed or has too few real servers up is a problem
// or a warning.
func TestServices(t *testing.T) {
	view := func(name string, status api.ServiceStatus, states ...api.RealStatus) api.ServiceView {
		v := api.ServiceView{VirtualService: model.VirtualService{Name: name}, Status: status}
		for _, s := range states {
			v.Servers = append(v.Servers, api.RealView{State: s})
		}
		return v
	}
	failed := view("failed", api.ServiceFailed)
	failed.Problem = "no such link"
	all := []api.ServiceView{failed, view("well", api.ServiceUp, api.RealUp),
		view("sorry", api.ServiceSorry, api.RealDown, api.RealSorry),
		view("down", api.ServiceDown, api.RealDown), view("empty", api.ServiceDown),
		view("drained", api.ServiceDown, api.RealDrained), view("panics", api.ServicePanics, api.RealDown, api.RealUp)}
	var got []string
	for _, f := range doctor.Examine(doctor.Host{Balanced: all, Daemon: true}) {
		got = append(got, string(f.Severity)+": "+f.Seen)
	}
	want := []string{"problem: service failed failed: no such link",
		"problem: service down has 0 of 1 real servers up, fewer than its quorum of 1",
		"warning: service empty has no real server",
		"warning: every real server of service drained drains or has weight 0",
		"warning: service panics ignores its checks, because only 1 of 2 real servers are up"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestDrift: a failed repair is a problem until a later repair succeeds, a
// conflict is a warning, and a repaired object is a note.
func TestDrift(t *testing.T) {
	at := func(second int64, kind api.EventKind, object string) api.Event {
		return api.Event{Time: time.Unix(second, 0), Kind: kind, Object: object}
	}
	events := []api.Event{
		at(1, api.Unhealed, "nft table"), at(2, api.Healed, "nft table"),
		at(3, api.Conflicting, "route"), at(4, api.Unhealed, "link"),
	}
	var got []string
	for _, f := range doctor.Examine(doctor.Host{Events: events, Daemon: true}) {
		got = append(got, string(f.Severity)+" "+strings.Fields(f.Seen)[0])
	}
	if want := []string{"problem link", "warning another", "note the"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// TestUnavailableNetworks: a network that cannot exist on the host is a problem if it has attachments, else a warning.
func TestUnavailableNetworks(t *testing.T) {
	h := doctor.Host{Daemon: true, Unavailable: map[string]string{"lan": "no parent up0", "old": "no parent up1"}}
	used := api.View{Status: api.Waiting}
	used.Network = "lan"
	h.Attachments = []api.View{used}
	var got []string
	for _, f := range doctor.Examine(h) {
		got = append(got, fmt.Sprint(f.Severity, " ", f.Check, ": ", f.Seen))
	}
	if want := []string{"problem network: network lan is unavailable on this host: no parent up0",
		"warning network: network old is unavailable on this host: no parent up1"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestProxyMemory: many proxies are reported, a few are not, and a process with
// two listeners is counted once.
func TestProxyMemory(t *testing.T) {
	proxies := func(n int) (all []facts.Listener) {
		for i := range n {
			l := facts.Listener{Memory: 2 << 20,
				Args: strings.Fields(fmt.Sprintf("docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port %d -container-ip 172.17.0.2 -container-port 80", 8000+i))}
			l.Process = sockdiag.Owner{PID: 100 + i, Command: "docker-proxy"}
			all = append(all, l)
		}
		return append(all, all[0])
	}
	for n, want := range map[int]bool{3: false, 40: true} {
		found := doctor.Examine(doctor.Host{Facts: facts.Facts{Listeners: proxies(n)}, Daemon: true})
		got := slices.ContainsFunc(found, func(f doctor.Finding) bool {
			return f.Check == "docker-proxy-memory" && strings.Contains(f.Seen, "80 MiB")
		})
		if got != want {
			t.Errorf("%d proxies: found %+v", n, found)
		}
	}
}

// TestWorstFirst: problems come before warnings, and warnings before notes.
func TestWorstFirst(t *testing.T) {
	h := doctor.Host{Facts: facts.Facts{
		Links: []inspect.InsideLink{{Name: "eth0", Up: true, MTU: 1400},
			{Name: "docker0", Kind: "bridge", Up: true, MTU: 1500}},
		Routes:   []inspect.InsideRoute{{To: netip.MustParsePrefix("0.0.0.0/0"), Link: "eth0"}},
		Settings: map[string]string{facts.BridgeFilter4: "1", facts.ConntrackCount: "99", facts.ConntrackMax: "100"}},
		Daemon: true}
	var got []string
	for _, f := range doctor.Examine(h) {
		got = append(got, string(f.Severity)+" "+f.Check)
	}
	if want := []string{"problem conntrack", "warning mtu", "note bridge-filter"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// TestEveryCheckIsTested: a test makes each check report something, and the guide
// lists each check.
func TestEveryCheckIsTested(t *testing.T) {
	tested := map[string]bool{"attachments": true, "services": true, "drift": true, "docker-proxy-memory": true,
		"network": true, "service-address": true, "address-conflict": true, "cluster": true,
		"virtual-address": true, "neighbour-table": true}
	for _, c := range faults {
		tested[c.check] = true
	}
	page, err := os.ReadFile("../../../docs/guide/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range doctor.Checks() {
		if !tested[c.Name] {
			t.Errorf("no test makes check %s report something", c.Name)
		}
		if !strings.Contains(string(page), "`"+c.Name+"`") {
			t.Errorf("the guide does not list check %s", c.Name)
		}
	}
}

// TestMTUOfNetworkBridge: the daemon resets the MTU of a network's bridge, so the
// fix changes the network and not the link.
func TestMTUOfNetworkBridge(t *testing.T) {
	h := doctor.Host{}
	h.Links = []inspect.InsideLink{{Name: "eth0", Kind: "device", Up: true, MTU: 1400},
		{Name: "fl-web", Kind: "bridge", Up: true, MTU: 1500, Owner: "web"},
		{Name: "fl-odd", Kind: "bridge", Up: true, MTU: 1500, Owner: "$(reboot)"},
		{Name: "docker0", Kind: "bridge", Up: true, MTU: 1500}}
	h.Routes = []inspect.InsideRoute{{To: netip.MustParsePrefix("0.0.0.0/0"), Link: "eth0"}}
	var got []string
	for _, f := range doctor.Examine(h) {
		if f.Check == "mtu" {
			command, _, _ := strings.Cut(f.Fix, ",")
			got = append(got, command)
		}
	}
	want := []string{"fairlead network create web --mtu 1400", "fairlead network create NAME --mtu 1400",
		"ip link set dev docker0 mtu 1400"}
	if !slices.Equal(got, want) {
		t.Errorf("the fixes are %q, want %q", got, want)
	}
}
