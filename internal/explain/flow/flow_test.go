package flow_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/explain/flow"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	want := flow.Flow{From: "web", To: "db", Port: 5432, Proto: model.TCP}
	for text, want := range map[string]flow.Flow{
		"web -> db:5432":               want,
		"web->db:5432":                 want,
		"web to db:5432/tcp":           want,
		"web db:5432":                  want,
		"10.0.0.7 -> :8080":            {From: "10.0.0.7", Port: 8080, Proto: model.TCP},
		"10.0.0.7 → 192.0.2.1:53/udp":  {From: "10.0.0.7", To: "192.0.2.1", Port: 53, Proto: model.UDP},
		"10.0.0.7:40000 -> :8080":      {From: "10.0.0.7", FromPort: 40000, Port: 8080, Proto: model.TCP},
		"[2001:db8::7]:9 -> [::1]:80":  {From: "2001:db8::7", FromPort: 9, To: "::1", Port: 80, Proto: model.TCP},
		"[2001:db8::7] -> [::1]:80":    {From: "2001:db8::7", To: "::1", Port: 80, Proto: model.TCP},
		"container:web to netns:db:80": {From: "container:web", To: "netns:db", Port: 80, Proto: model.TCP},
	} {
		for _, words := range [][]string{{text}, strings.Fields(text)} {
			got, err := flow.Parse(words)
			if err != nil || got != want {
				t.Errorf("%q: %+v, %v", words, got, err)
			}
		}
		if again, err := flow.Parse([]string{want.String()}); err != nil || again != want {
			t.Errorf("%s: %+v, %v", want, again, err)
		}
	}
	for _, text := range []string{"", "web", "web to", "web to db", "web to db:0", "web to db:65536",
		"web to db:80/icmp",
		"web to 2001:db8::1:80", "web to db:80 now", ":80"} {
		if got, err := flow.Parse(strings.Fields(text)); err == nil {
			t.Errorf("%q is parsed as %+v, want an error", text, got)
		}
	}
}

// fake is a host with eth0 (192.0.2.2), a bridge br0 (10.9.0.1), and on the bridge
// the sandbox web (10.9.0.2).
type fake struct {
	rules     rules.Ruleset
	ebpfState datapath.State
	listeners map[string][]sockdiag.Listener
	published []flow.Published
	services  []flow.Service
	failed    []flow.Known
	routes    map[string]rtnl.RouteFound // by "NETNS TO"
	settings  map[string]string
	proxy     netip.AddrPort
	// kind is that of br0, and own an address of the host's loopback link.
	kind, own string
}

func newFake() *fake {
	return &fake{
		listeners: map[string][]sockdiag.Listener{"/web": {{Proto: model.TCP, At: at("0.0.0.0:80"),
			Process: sockdiag.Owner{PID: 7, Command: "nginx"}}}},
		routes: map[string]rtnl.RouteFound{
			" 192.0.2.2": {Type: unix.RTN_LOCAL, Link: "lo", Src: ip("192.0.2.2")},
			" 127.0.0.1": {Type: unix.RTN_LOCAL, Link: "lo", Src: ip("127.0.0.1")},
			" 192.0.2.7": {Type: unix.RTN_UNICAST, Link: "eth0", Src: ip("192.0.2.2"),
				To: netip.MustParsePrefix("192.0.2.0/24")},
			" 10.9.0.1": {Type: unix.RTN_LOCAL, Link: "lo", Src: ip("10.9.0.1")},
			" 10.9.0.2": {Type: unix.RTN_UNICAST, Link: "br0", Src: ip("10.9.0.1"),
				To: netip.MustParsePrefix("10.9.0.0/24")},
			"/web 10.9.0.2": {Type: unix.RTN_LOCAL, Link: "lo"},
			"/web 10.9.0.1": {Type: unix.RTN_UNICAST, Link: "eth0", Src: ip("10.9.0.2")},
			"/web 192.0.2.7": {Type: unix.RTN_UNICAST, Link: "eth0", Src: ip("10.9.0.2"), Via: ip("10.9.0.1"),
				To: netip.MustParsePrefix("0.0.0.0/0")},
		},
		settings: map[string]string{}, kind: "bridge", own: "127.0.0.1/8",
	}
}

// TestLinkOfAnotherKind: a port of Open vSwitch, or a link of a VRF, is not followed as one of a bridge.
func TestLinkOfAnotherKind(t *testing.T) {
	f := newFake()
	f.kind = "openvswitch"
	e, err := flow.Explain(f.world(), flow.Flow{From: "10.9.0.2", To: "10.9.0.1", Port: 80, Proto: model.TCP})
	if err != nil || e.Outcome != flow.Unknown || !e.Uncertain {
		t.Errorf("%s, uncertain %t: %s, %v", e.Outcome, e.Uncertain, e.Verdict, err)
	}
}

// TestAddressOfHostAndSandbox: a flow from an address that the host and a sandbox have may begin at either.
func TestAddressOfHostAndSandbox(t *testing.T) {
	for own, uncertain := range map[string]bool{"10.9.0.2/32": true, "127.0.0.1/8": false} {
		f := newFake()
		f.own = own
		e, err := flow.Explain(f.world(), flow.Flow{From: "10.9.0.2", To: "10.9.0.1", Port: 80, Proto: model.TCP})
		if err != nil || e.Uncertain != uncertain ||
			uncertain && !strings.Contains(strings.Join(e.Caveats, ""), "10.9.0.2 is an address of the host and of web") {
			t.Errorf("the host has %s: uncertain %t, %v, %v", own, e.Uncertain, e.Caveats, err)
		}
	}
}

func ip(s string) netip.Addr     { return netip.MustParseAddr(s) }
func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func (f *fake) world() flow.World {
	return flow.World{Namespaces: f, Links: f, Routes: f, Settings: f, Filters: f, Ports: f, Services: f, Programs: f}
}

func (f *fake) Name(netns string) string {
	if netns == "" {
		return "host"
	}
	return strings.TrimPrefix(netns, "/")
}

func (f *fake) Links(netns string) ([]rtnl.NetLink, error) {
	prefix := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	lo := rtnl.NetLink{Name: "lo", Index: 1, Kind: "loopback", Up: true, Addresses: prefix("127.0.0.1/8")}
	if netns == "/web" {
		return []rtnl.NetLink{lo, {Name: "eth0", Index: 2, Kind: "veth", Up: true, Addresses: prefix("10.9.0.2/24"),
			Parent: 4, ParentNetns: 0}}, nil
	}
	lo.Addresses = prefix(f.own)
	return []rtnl.NetLink{lo,
		{Name: "eth0", Index: 2, Kind: "device", Up: true, Addresses: prefix("192.0.2.2/24")},
		{Name: "br0", Index: 3, Kind: f.kind, Up: true, Addresses: prefix("10.9.0.1/24"), Owner: "net"},
		{Name: "port", Index: 4, Kind: "veth", Up: true, Bridge: "br0", Parent: 2, Owner: "web"}}, nil
}

func (f *fake) Peer(netns string, l rtnl.NetLink) (flow.End, bool) {
	other := map[string]struct{ netns, link string }{" port": {"/web", "eth0"}, "/web eth0": {"", "port"}}[netns+" "+
		l.Name]
	links, _ := f.Links(other.netns)
	for _, o := range links {
		if o.Name == other.link {
			return flow.End{Netns: other.netns, NetLink: o}, true
		}
	}
	return flow.End{}, false
}

func (f *fake) Route(netns string, q rtnl.RouteQuery) (rtnl.RouteFound, error) {
	if r, ok := f.routes[netns+" "+q.To.String()]; ok {
		return r, nil
	}
	return rtnl.RouteFound{}, &rtnl.ErrNoRoute{Why: "no route to the destination"}
}

func (f *fake) Selectors(string) (rtnl.RouteSelectors, error) { return rtnl.RouteSelectors{}, nil }
func (f *fake) Policies(string) ([]plan.IPsecPolicy, error)   { return nil, nil }
func (f *fake) Foreign(string) ([]inspect.Foreign, error)     { return nil, nil }
func (f *fake) Neighbours(string) (neighbours, forwarding []rtnl.NeighbourEntry, err error) {
	return nil, nil, nil
}

func (f *fake) Rules(netns string) (rules.Ruleset, []string, error) {
	if netns != "" {
		return nil, nil, nil
	}
	return f.rules, nil, nil
}

func (f *fake) Listeners(netns string) ([]sockdiag.Listener, error) { return f.listeners[netns], nil }
func (f *fake) Setting(_, name string) string                       { return f.settings[name] }
func (f *fake) EBPFState() (datapath.State, error)                  { return f.ebpfState, nil }
func (f *fake) SubLinks(string, rtnl.NetLink) []flow.End            { return nil }
func (f *fake) Published() []flow.Published                         { return f.published }
func (f *fake) Services() ([]flow.Service, error)                   { return f.services, nil }
func (f *fake) Failed() []flow.Known                                { return f.failed }
func (f *fake) MinTTL(sockdiag.Listener, bool) int                  { return 0 }
func (f *fake) SocketFilters(sockdiag.Listener) ([]string, error)   { return nil, nil }
func (f *fake) ProxyTarget(l sockdiag.Listener) (netip.AddrPort, bool) {
	return f.proxy, l.Process.Command == "docker-proxy"
}

func (f *fake) Holder(a netip.Addr) (string, bool, bool) {
	return "/web", true, a == ip("10.9.0.2")
}

func (f *fake) Find(name string) (string, error) {
	if name == "web" {
		return "/web", nil
	}
	return "", errors.New("no such sandbox is running")
}

// chain returns a ruleset of one base chain.
func chain(table, hook, kind string, all ...rules.Rule) rules.Ruleset {
	return rules.Ruleset{{Table: table, Name: hook, Hook: hook, Type: kind, Policy: rules.Accept, Rules: all}}
}

// port returns the condition that a packet is for a port.
func port(n byte) []rules.Condition {
	b := []byte{0, n}
	return []rules.Condition{{Fields: []rules.Field{rules.Port}, In: [][]rules.Range{{{First: b, Last: b}}}}}
}

// datagrams adds rules that check the sources of datagrams before a port mapping, as Fairlead's chain does.
func datagrams(f *fake) {
	field := func(of rules.Field, value ...byte) []rules.Condition {
		return []rules.Condition{{Fields: []rules.Field{of}, In: [][]rules.Range{{{First: value, Last: value}}}}}
	}
	sources := chain("inet fairlead", "prerouting", "nat",
		rules.Rule{Action: rules.Accept, Conditions: field(rules.InLink, append([]byte("lo"), make([]byte, 14)...)...)},
		rules.Rule{Action: rules.Drop, Conditions: field(rules.SourceType, unix.RTN_LOCAL, 0, 0, 0)},
		rules.Rule{Action: rules.Drop, Conditions: field(rules.ReturnRoute, 0, 0, 0, 0)})
	f.rules = append(sources, chain("ip nat", "prerouting", "nat",
		rules.Rule{Action: rules.DNAT, To: ip("10.9.0.2"), ToPorts: model.Port(80), Conditions: port(88)})...)
}

// TestExplain follows packets through fake hosts.
func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		flow string
		host func(*fake)
		want string
	}{
		"a port of the host without a listener": {"192.0.2.7 to :80", nil,
			"begin host eth0, route host eth0, socket host eth0 = refused: no socket listens on 192.0.2.2:80/tcp in host"},
		"straight to a sandbox": {"host to web:80", nil,
			"route host br0, bridge host br0, link web eth0, route web eth0, socket web eth0 = delivered: delivered to nginx (pid 7) in web"},
		"DNAT of another program": {"192.0.2.7 to :88", func(f *fake) {
			f.rules = chain("ip nat", "prerouting", "nat",
				rules.Rule{Action: rules.DNAT, To: ip("10.9.0.2"), ToPorts: model.Port(80), Conditions: port(88)})
		},
			"begin host eth0, nat host eth0, route host eth0, bridge host br0, link web eth0, route web eth0, socket web eth0 = delivered: delivered to nginx (pid 7) in web"},
		"a rule that drops": {"192.0.2.7 to :88", func(f *fake) {
			f.rules = chain("inet fw", "input", "filter", rules.Rule{Action: rules.Drop, Conditions: port(88)})
		},
			"begin host eth0, route host eth0, filter host eth0 = dropped: dropped by a rule at input of host: inet fw input: th dport 88 drop"},
		"a datagram whose source is behind the link": {"192.0.2.7 to :88/udp", datagrams,
			"begin host eth0, nat host eth0, route host eth0, bridge host br0, link web eth0, route web eth0, socket web eth0 = refused: no socket listens on 10.9.0.2:80/udp in web"},
		"a datagram from the host itself": {"host to 192.0.2.2:88/udp", datagrams,
			"route host lo, socket host lo = refused: no socket listens on 192.0.2.2:88/udp in host"},
		"a rule that drops before NAT": {"192.0.2.7 to :88", func(f *fake) {
			f.rules = chain("inet fw", "prerouting", "nat", rules.Rule{Action: rules.Drop, Conditions: port(88)})
		},
			"begin host eth0, filter host eth0 = dropped: dropped by a rule at prerouting of host: inet fw prerouting: th dport 88 drop"},
		"a rule that cannot be evaluated": {"192.0.2.7 to :88", func(f *fake) {
			f.rules = chain("inet fw", "input", "filter",
				rules.Rule{Action: rules.Drop, Conditions: port(88), Partial: true})
		},
			"begin host eth0, route host eth0, filter? host eth0, socket host eth0 = refused: no socket listens on 192.0.2.2:88/tcp in host"},
		"no route": {"web to 198.51.100.1:80", nil,
			"route web = no-route: web cannot route packets to 198.51.100.1: no route to the destination"},
		"an answer without a route": {"192.0.2.7 to 10.9.0.2:80", func(f *fake) { delete(f.routes, "/web 192.0.2.7") },
			"begin host eth0, route host eth0, bridge host br0, link web eth0, route web eth0, socket web eth0, answer web = no-route: it reaches web, but the answer is lost: web cannot route packets to 192.0.2.7: no route to the destination"},
		"out of the host": {"host to 192.0.2.7:443", nil,
			"route host eth0, link host eth0 = leaves: it leaves this host via eth0, to 192.0.2.7"},
		"redirected by eBPF": {"192.0.2.7 to :88", func(f *fake) {
			f.ebpfState = datapath.State{Programs: []datapath.Program{{Name: "fl_uplink", Link: "eth0"}},
				Mappings: []plan.EBPFMapping{{Proto: model.TCP,
					Host: ip("0.0.0.0"), Ports: model.Port(88), To: ip("10.9.0.2"), ToPorts: model.Port(80),
					Link: "port"}}}
		},
			"begin host eth0, ebpf host eth0, link web eth0, route web eth0, socket web eth0, answer host port = delivered: delivered to nginx (pid 7) in web"},
		"redirected by eBPF, but the sandbox's default route is elsewhere": {"192.0.2.7 to :88", func(f *fake) {
			f.ebpfState = datapath.State{Programs: []datapath.Program{{Name: "fl_uplink", Link: "eth0"}},
				Mappings: []plan.EBPFMapping{{Proto: model.TCP,
					Host: ip("0.0.0.0"), Ports: model.Port(88), To: ip("10.9.0.2"), ToPorts: model.Port(80),
					Link: "port"}}}
			f.routes["/web 192.0.2.7"] = rtnl.RouteFound{Type: unix.RTN_UNICAST, Link: "eth1", Src: ip("172.17.0.2"),
				Via: ip("172.17.0.1"), To: netip.MustParsePrefix("0.0.0.0/0")}
		},
			"begin host eth0, ebpf host eth0, link web eth0, route web eth0, socket web eth0, answer web eth1 = no-route: it reaches web, but the answer leaves via eth1, where no eBPF program sets its source to the published address: publish the port via nat"},
		"redirected at connect": {"localhost to :88", func(f *fake) {
			f.ebpfState = datapath.State{Programs: []datapath.Program{{Name: "fl_connect4"}},
				Mappings: []plan.EBPFMapping{{Proto: model.TCP,
					Host: ip("0.0.0.0"), Ports: model.Port(88), To: ip("10.9.0.2"), ToPorts: model.Port(80),
					Link: "port"}}}
		},
			"connect host, route host br0, bridge host br0, link web eth0, route web eth0, socket web eth0, answer host = delivered: delivered to nginx (pid 7) in web"},
		"docker-proxy": {"localhost to :88", func(f *fake) {
			f.proxy = at("10.9.0.2:80")
			f.listeners[""] = []sockdiag.Listener{{Proto: model.TCP, At: at("0.0.0.0:88"),
				Process: sockdiag.Owner{PID: 9, Command: "docker-proxy"}}}
		},
			"route host lo, proxy host, route host br0, bridge host br0, link web eth0, route web eth0, socket web eth0, answer host = delivered: delivered to nginx (pid 7) in web"},
		"a host that does not forward": {"192.0.2.7 to 10.9.0.2:80",
			func(f *fake) { f.settings["net.ipv4.conf.eth0.forwarding"] = "0" },
			"begin host eth0, route host eth0 = no-route: host does not forward packets (net.ipv4.conf.eth0.forwarding = 0)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFake()
			if c.host != nil {
				c.host(w)
			}
			f, err := flow.Parse([]string{c.flow})
			if err != nil {
				t.Fatal(err)
			}
			e, err := flow.Explain(w.world(), f)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, summary(e)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// summary returns an explanation as one line. A question mark follows the kind of
// an uncertain hop.
func summary(e flow.Explanation) string {
	var hops []string
	for _, h := range e.Hops {
		kind := string(h.Kind)
		if h.Uncertain {
			kind += "?"
		}
		hops = append(hops, strings.TrimSpace(fmt.Sprintf("%s %s %s", kind, h.Where, h.Link)))
	}
	return fmt.Sprintf("%s = %s: %s", strings.Join(hops, ", "), e.Outcome, e.Verdict)
}

func TestMistakes(t *testing.T) {
	for _, text := range []string{"unknown to :80", "web to unknown:80", "203.0.113.1 to :80", "2001:db8::1 to web:80",
		"web to [2001:db8::1]:80x"} {
		f, err := flow.Parse([]string{text})
		if err == nil {
			_, err = flow.Explain(newFake().world(), f)
		}
		if err == nil {
			t.Errorf("%s is explained, want an error", text)
		}
	}
}

// TestBadAddresses: the error for a mistyped address says that the address is not
// valid, and does not take it for a sandbox's name.
func TestBadAddresses(t *testing.T) {
	for _, text := range []string{"192.0.2.300 to :80", "web to 10.9.0:80", "web to [2001:db8::1::2]:80",
		"2001:db8::zz to :80"} {
		f, err := flow.Parse([]string{text})
		if err == nil {
			_, err = flow.Explain(newFake().world(), f)
		}
		if err == nil || !strings.Contains(err.Error(), "is not a valid IP address") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
