package docker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/engine"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
)

const (
	network  = `"NetworkID": "0123456789abcdef0123"`
	endpoint = network + `, "EndpointID": "fedcba9876543210fedc"`
	created  = `{` + network + `, "IPv4Data": [{"Pool": "172.30.0.0/24", "Gateway": "172.30.0.1/24"}]}`
)

func TestActivate(t *testing.T) {
	p := newPlugin(t)
	p.calls("Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`)
	p.calls("NetworkDriver.GetCapabilities", "", `{"Scope":"local","ConnectivityScope":"local","GwAllocChecker":true}`)
	p.calls("IpamDriver.GetCapabilities", "", `{"RequiresMACAddress":false,"RequiresRequestReplay":true}`)
	p.calls("NetworkDriver.DiscoverNew", `{"DiscoveryType": 1, "DiscoveryData": {}}`, `{}`)
}

// generic writes a network's options as Docker sends them.
func generic(options map[string]string) string {
	text, _ := json.Marshal(options)
	return `{` + network + `, "Options": {"com.docker.network.generic": ` + string(text) + `},
		"IPv4Data": [{"AddressSpace": "x", "Pool": "192.0.2.0/24", "Gateway": "192.0.2.1/24", "AuxAddresses": {"host": "192.0.2.9/24", "router": "192.0.2.8/24"}}]}`
}

func TestNetworks(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	lan := model.Subnet{Prefix: prefix("192.0.2.0/24"), Gateway: addr("192.0.2.1"), Address: addr("192.0.2.9")}
	for _, c := range []struct {
		what    string
		options map[string]string
		want    model.Network
	}{
		{"bridge is the default", nil, model.Network{Driver: model.DriverBridge}},
		{"Docker's option for the MTU", map[string]string{"com.docker.network.driver.mtu": "1400"},
			model.Network{Driver: model.DriverBridge, MTU: 1400}},
		{"Docker's options for macvlan", map[string]string{"parent": "eth0", "macvlan_mode": "private"},
			model.Network{Driver: model.DriverMacvlan, Parent: "eth0", Mode: model.ModePrivate}},
		{"a VLAN as Docker writes it", map[string]string{"parent": "eth0.100"},
			model.Network{Driver: model.DriverMacvlan, Parent: "eth0", VLAN: 100}},
		{"a link whose name looks like a VLAN", map[string]string{"parent": "eth0.7", "driver": "ipvlan"},
			model.Network{Driver: model.DriverIPvlan, Parent: "eth0.7"}},
		{"a device", map[string]string{"driver": "device", "parent": "0000:3b:02.1"},
			model.Network{Driver: model.DriverDevice, Parent: "0000:3b:02.1"}},
		{"an overlay", map[string]string{"vni": "7", "peers": "192.0.2.2=192.0.2.0/25 192.0.2.3",
			"underlay": "eth0,eth1", "encrypt": "true", "key-file": "/key"},
			model.Network{Driver: model.DriverVXLAN,
				Overlay: model.Overlay{VNI: 7, Encrypt: true, KeyFile: "/key", Underlays: []string{"eth0", "eth1"},
					Peers: []model.Peer{{Address: addr("192.0.2.2"), Ranges: []netip.Prefix{prefix("192.0.2.0/25")}},
						{Address: addr("192.0.2.3")}}}}},
	} {
		p := newPlugin(t)
		p.calls("NetworkDriver.CreateNetwork", generic(c.options), `{}`)
		c.want.Name, c.want.Origin, c.want.Subnets = "docker-0123456789ab", model.FromDocker, []model.Subnet{lan}
		if len(p.Networks()) != 1 || !reflect.DeepEqual(p.Networks()[0], c.want) {
			t.Errorf("%s: %+v", c.what, p.Networks())
		}
		for range 2 {
			p.calls("NetworkDriver.DeleteNetwork", `{`+network+`}`, `{}`)
		}
		if len(p.Networks()) != 0 || len(p.lasting) != 0 {
			t.Errorf("%s: left: %+v, %s", c.what, p.Networks(), p.lasting)
		}
	}
}

func TestHostIsTheGateway(t *testing.T) {
	p := newPlugin(t)
	p.calls("NetworkDriver.CreateNetwork", `{`+network+`, "Options": {"com.docker.network.internal": true},
		"IPv4Data": [{"Pool": "172.30.0.0/24", "Gateway": "172.30.0.254/24"}], "IPv6Data": [{"Pool": "fd00:30::/64", "Gateway": "fd00:30::1/64"}]}`, `{}`)
	n := p.Networks()[0]
	if !n.Internal || n.Subnets[0].HostAddress().String() != "172.30.0.254" ||
		n.Subnets[1].GatewayAddress().String() != "fd00:30::1" {
		t.Errorf("%+v", n)
	}
}

func TestInvalidNetworksAreRefused(t *testing.T) {
	p := newPlugin(t)
	for option, why := range map[string]string{
		"colour=red": "want one of driver, via,", "driver=host": "--network host", "driver=none": "--network none",
		"driver=macvtap": "want one of",
		"via=socket":     "containers on the host's network", "via=pigeon": "publish mode does not exist",
		"mtu=many": "want a number", "hairpin=maybe": "true or false",
		"peers=everybody": "want an address", "vni=x": "want a number", "promises=fidelity": "no publish mode promises",
		"com.docker.network.bridge.enable_icc=false":         "separate networks",
		"com.docker.network.bridge.gateway_mode_ipv4=routed": "driver=routed",
	} {
		name, value, _ := strings.Cut(option, "=")
		p.refuses("NetworkDriver.CreateNetwork", generic(map[string]string{name: value}), why)
	}
	p.refuses("NetworkDriver.CreateNetwork", generic(map[string]string{"driver": "bridge", "macvlan_mode": "vepa"}),
		"has the driver bridge")
	p.refuses("NetworkDriver.CreateNetwork", `{"NetworkID": "../../etc"}`, "want letters")
	p.refuses("NetworkDriver.CreateNetwork", `{}`, "want letters")
	p.refuses("NetworkDriver.CreateNetwork", `{"NetworkID": "`+strings.Repeat("a", 129)+`"}`, "want letters")
	p.refuses("NetworkDriver.CreateNetwork", `{`+network+`, "IPv4Data": [{"Pool": "everything"}]}`,
		"want an address range")
	p.refuses("NetworkDriver.CreateNetwork", `{`+network+
		`, "IPv4Data": [{"Pool": "10.0.0.0/24"}, {"Pool": "10.0.1.0/24"}]}`, "at most one subnet per address family")
	if len(p.Networks()) != 0 || len(p.lasting) != 0 {
		t.Errorf("left: %+v, %s", p.Networks(), p.lasting)
	}
}

func TestGateways(t *testing.T) {
	p := newPlugin(t)
	p.calls("NetworkDriver.GwAllocCheck", generic(nil), `{"SkipIPv4":false,"SkipIPv6":false}`)
	p.calls("NetworkDriver.GwAllocCheck", generic(map[string]string{"ipvlan_mode": "l3"}),
		`{"SkipIPv4":true,"SkipIPv6":true}`)
}

// TestEndpointCallsCanBeRepeated makes every call twice, as Docker does after a
// failure.
func TestEndpointCallsCanBeRepeated(t *testing.T) {
	p := newPlugin(t)
	p.Config.Routes = []model.Route{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: netip.MustParseAddr("172.30.0.1")},
		{To: netip.MustParsePrefix("172.30.0.1/32")}}
	p.calls("NetworkDriver.CreateNetwork", created, `{}`)
	for range 2 {
		p.calls("NetworkDriver.CreateEndpoint", `{`+endpoint+
			`, "Interface": {"Address": "172.30.0.2/24"}, "Options": {"com.docker.network.endpoint.ifname": "web0"}}`,
			`{"Interface":{"MacAddress":"02:f1:ac:1e:00:02"}}`)
	}
	for range 2 {
		p.calls("NetworkDriver.Join", `{`+endpoint+`, "SandboxKey": "/run/docker/netns/1", "Options": {}}`,
			`{"InterfaceName":{"SrcName":"fd-fedcba987654","DstPrefix":"eth","DstName":"web0"},"Gateway":"172.30.0.1","GatewayIPv6":"fd00:30::1",`+
				`"StaticRoutes":[{"Destination":"172.30.0.1/32","RouteType":1},{"Destination":"10.0.0.0/8","RouteType":0,"NextHop":"172.30.0.1"}],"DisableGatewayService":false}`)
	}
	a := p.Attachments()[0]
	if len(p.Attachments()) != 1 || a.Network != "docker-0123456789ab" || a.HostInterface != "fd-fedcba987654" ||
		a.Addresses[0].String() != "172.30.0.2" || a.Origin != model.FromDocker {
		t.Errorf("%+v", p.Attachments())
	}
	for _, method := range []string{"RevokeExternalConnectivity", "Leave", "DeleteEndpoint"} {
		for range 2 {
			p.calls("NetworkDriver."+method, `{`+endpoint+`}`, `{}`)
		}
	}
	if len(p.Attachments()) != 0 || len(p.passing) != 0 {
		t.Errorf("left: %+v, %s", p.Attachments(), p.passing)
	}
	p.refuses("NetworkDriver.Join", `{`+endpoint+`}`, "not reserved")
}

func TestResponseOmitsWhatDockerHasSet(t *testing.T) {
	p := newPlugin(t)
	p.calls("NetworkDriver.CreateEndpoint", `{`+endpoint+
		`, "Interface": {"Address": "172.30.0.2/24", "MacAddress": "02:00:00:00:00:01"}}`, `{"Interface":{}}`)
	if mac := p.Attachments()[0].MAC; mac != "02:00:00:00:00:01" {
		t.Errorf("got the MAC address %s", mac)
	}
}

// TestStaleEndpointIsRemoved checks that an endpoint is removed if Docker leases its
// address again. This happens if Docker was killed before it saved the endpoint.
func TestStaleEndpointIsRemoved(t *testing.T) {
	p := newPlugin(t)
	for _, id := range []string{"1111", "2222"} {
		p.calls("NetworkDriver.CreateEndpoint", `{`+network+`, "EndpointID": "`+id+
			`", "Interface": {"Address": "172.30.0.2/24", "MacAddress": "02:00:00:00:00:01"}}`, `{"Interface":{}}`)
	}
	if len(p.Attachments()) != 1 || p.Attachments()[0].Name != "docker-2222" {
		t.Errorf("%+v", p.Attachments())
	}
}

// TestNoDefaultGateway checks that Docker does not connect its own bridge to a
// container without a default route, and that an internal network publishes nothing.
func TestNoDefaultGateway(t *testing.T) {
	for options, want := range map[string][]string{`{}`: {"8080/tcp -> :80 via auto"},
		`{"com.docker.network.internal": true}`: nil} {
		t.Run(options, func(t *testing.T) { noGateway(t, options, want) })
	}
}

func noGateway(t *testing.T, options string, want []string) {
	p := newPlugin(t)
	p.Config = engine.SandboxConfig{}
	p.calls("NetworkDriver.CreateNetwork", strings.Replace(created, `{`, `{"Options": `+options+`, `, 1), `{}`)
	p.calls("NetworkDriver.CreateEndpoint", `{`+endpoint+`}`, `{"Interface":{}}`)
	p.calls("NetworkDriver.Join", `{`+endpoint+`, "SandboxKey": "/x", `+
		ports(`{"Proto": 6, "Port": 80, "HostPort": 8080, "HostPortEnd": 8080}`)+`}`,
		`{"InterfaceName":{"SrcName":"fd-fedcba987654","DstPrefix":"eth"},"DisableGatewayService":true}`)
	if got := p.published(); !slices.Equal(got, want) {
		t.Errorf("published: got %q, want %q", got, want)
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	p := newPlugin(t)
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "NetworkDriver.Join", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "NetworkDriver.Rejoin", "", http.StatusNotFound},
		{http.MethodPost, "", "", http.StatusNotFound},
		{http.MethodPost, "NetworkDriver.Join/../../etc/passwd", "", http.StatusNotFound},
		{http.MethodPost, "NetworkDriver.Join", `{"NetworkID":`, http.StatusBadRequest},
		{http.MethodPost, "NetworkDriver.Join", `[]`, http.StatusBadRequest},
		{http.MethodPost, "NetworkDriver.Join", `{"Options": 7}`, http.StatusBadRequest},
		{http.MethodPost, "NetworkDriver.Join", strings.Repeat("[", 1<<20), http.StatusBadRequest},
		{http.MethodPost, "NetworkDriver.Join", `"` + strings.Repeat("x", 33<<20) + `"`,
			http.StatusRequestEntityTooLarge},
	} {
		w := p.post(c.method, c.path, strings.NewReader(c.body))
		if w.Code != c.want || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s %.40s: %d %.200s, want %d", c.method, c.path, c.body, w.Code, w.Body, c.want)
		}
	}
}

// FuzzCalls checks that no request makes a method crash or return invalid JSON.
func FuzzCalls(f *testing.F) {
	methods := []string{"Plugin.Activate", "NetworkDriver.GwAllocCheck", "NetworkDriver.CreateNetwork",
		"NetworkDriver.DeleteNetwork",
		"NetworkDriver.CreateEndpoint", "NetworkDriver.EndpointOperInfo", "NetworkDriver.DeleteEndpoint",
		"NetworkDriver.Join", "NetworkDriver.Leave",
		"NetworkDriver.ProgramExternalConnectivity", "NetworkDriver.RevokeExternalConnectivity",
		"IpamDriver.RequestPool", "IpamDriver.ReleasePool", "IpamDriver.RequestAddress", "IpamDriver.ReleaseAddress"}
	for i := range methods {
		for _, body := range []string{"", `{}`, created, generic(map[string]string{"vni": "7"}), `{` + endpoint + `, ` +
			ports(`{"Proto": 17, "Port": 1, "HostPort": 1, "HostPortEnd": 9}`) + `}`,
			`{"Pool": "10.0.0.0/30", "V6": true}`, `{"PoolID": "10.0.0.0/30", "Address": "10.0.0.2"}`,
			`{"PoolID": "::/0 ::/0"}`} {
			f.Add(uint8(i), body)
		}
	}
	f.Fuzz(func(t *testing.T, method uint8, body string) {
		p := newPlugin(t)
		p.calls("NetworkDriver.CreateEndpoint", `{`+endpoint+`}`, `{"Interface":{"MacAddress":"02:f1:ac:1e:00:02"}}`)
		w := p.post(http.MethodPost, methods[int(method)%len(methods)], strings.NewReader(body))
		if !json.Valid(w.Body.Bytes()) || w.Code >= http.StatusInternalServerError {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for _, n := range p.Networks() {
			if strings.ContainsAny(n.Name, "/\x00\n ") {
				t.Errorf("a network has the name %q", n.Name)
			}
		}
	})
}

// TestOptionsAreDocumented compares the guide's table with the options.
func TestOptionsAreDocumented(t *testing.T) {
	var rows []string
	for _, o := range docker.Options() {
		rows = append(rows, fmt.Sprintf("| `%s=%s` | %s |", o.Name, strings.ReplaceAll(o.Value, "|", `\|`), o.What))
	}
	guide := read(t, "../../../docs/guide/docker.md")
	for _, row := range rows {
		if !strings.Contains(guide, row+"\n") {
			t.Errorf("docs/guide/docker.md lacks\n%s", row)
		}
	}
	if listed := strings.Count(guide, "\n| `") - len(rows); listed != 0 {
		t.Errorf("docs/guide/docker.md lists %d options that do not exist", listed)
	}
}
