package paths_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
)

// plain are the facts of a kernel that supports netfilter only.
var plain = plan.Facts{Missing: map[plan.Feature]string{
	plan.FeatureEBPF: "too old", plan.FeatureCgroupHooks: "too old"}}

// at is how a bridge attaches an endpoint.
var at = &plan.Attachment{Link: "fl-net"}

func auto(proto model.Proto, promises ...promise.Question) model.Publish {
	p := model.Publish{Via: model.ViaAuto, Proto: proto, HostPorts: model.Port(80)}
	for _, q := range promises {
		p.Promises = append(p.Promises, string(q))
	}
	return p
}

func mustDriver(t *testing.T, name model.Driver) driver.Driver {
	t.Helper()
	d, ok := paths.Driver(name)
	if !ok {
		t.Fatalf("there is no driver %s", name)
	}
	return d
}

func TestChoose(t *testing.T) {
	withHeader := auto(model.TCP)
	withHeader.ProxyProtocol = 2
	for _, c := range []struct {
		name    string
		facts   plan.Facts
		driver  model.Driver
		publish model.Publish
		want    model.Via
		because string // the reason of the chosen mode
	}{
		{"nothing asked", plain, model.DriverBridge, auto(model.TCP), model.ViaNAT, "the cheapest"},
		{"a cheap promise", plain, model.DriverBridge, auto(model.UDP, promise.LANSource), model.ViaNAT,
			"the cheapest that promises lan-source"},
		{"a promise with a limit", plain, model.DriverBridge, auto(model.TCP, promise.ForwardFirewall, promise.LAN),
			model.ViaNAT,
			"the cheapest that promises forward-firewall (except for IPv6 to an IPv4 endpoint, which the proxy serves), lan"},
		{"a costly promise", plan.Facts{}, model.DriverBridge, auto(model.TCP, promise.InputFirewall), model.ViaProxy,
			"the cheapest that promises input-firewall (packets end at the host's stack)"},
		{"one costly promise of several", plain, model.DriverBridge,
			auto(model.TCP, promise.LAN, promise.InputFirewall, promise.Loopback6), model.ViaProxy, ""},
		{"a promise that only this driver keeps", plain, model.DriverRouted, auto(model.TCP, promise.PeerSource),
			model.ViaNAT, ""},
		{"a PROXY header", plain, model.DriverBridge, withHeader, model.ViaProxy, "the cheapest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, at := range []*plan.Attachment{at, nil} {
				choice, err := paths.Choose(c.facts, mustDriver(t, c.driver), c.publish, at)
				if err != nil || choice.Via != c.want {
					t.Fatalf("%q, %v; want %s", choice.Via, err, c.want)
				}
				for _, candidate := range choice.Candidates {
					if candidate.Reason == "" || (candidate.Verdict == paths.Chosen) != (candidate.Via == c.want) {
						t.Errorf("the reason is missing or the verdict is wrong: %+v", candidate)
					}
					if candidate.Via == c.want && !strings.Contains(candidate.Reason, c.because) {
						t.Errorf("%s because %q, want %q", c.want, candidate.Reason, c.because)
					}
				}
			}
		})
	}
}

// TestChooseWithIPsec checks that publishes and services do not use eBPF if an IPsec
// policy of the host covers their clients.
func TestChooseWithIPsec(t *testing.T) {
	host := netip.MustParseAddr("192.0.2.1")
	port := &plan.Attachment{Link: "fl-net", Port: "fv-web"}
	for _, c := range []struct {
		name   string
		policy plan.IPsecPolicy
		via    model.Via
		plane  model.Plane
	}{
		{"all", plan.IPsecPolicy{}, model.ViaNAT, model.PlaneNFT},
		{"the port", plan.IPsecPolicy{Proto: 6, LocalPort: 80}, model.ViaNAT, model.PlaneNFT},
		{"another port", plan.IPsecPolicy{Proto: 6, LocalPort: 81}, model.ViaEBPF, model.PlaneEBPF},
		{"UDP", plan.IPsecPolicy{Proto: 17}, model.ViaEBPF, model.PlaneEBPF},
	} {
		c.policy.Local, c.policy.Remote = netip.PrefixFrom(host, 32), netip.MustParsePrefix("10.0.0.0/8")
		facts := plan.Facts{IPsec: []plan.IPsecPolicy{c.policy}}
		for _, at := range []netip.Addr{{}, netip.IPv4Unspecified(), host} {
			p := auto(model.TCP)
			p.HostAddr = at
			choice, err := paths.Choose(facts, mustDriver(t, model.DriverBridge), p, port)
			if err != nil || choice.Via != c.via {
				t.Errorf("with a policy for %s, a publish at %s is via %s (%v), want %s", c.name, at, choice.Via, err,
					c.via)
			}
		}
		other := auto(model.TCP)
		other.HostAddr = host.Next()
		choice, err := paths.Choose(facts, mustDriver(t, model.DriverBridge), other, port)
		if choice.Via != model.ViaEBPF {
			t.Errorf("with a policy for %s, a publish at another address is via %s (%v)", c.name, choice.Via, err)
		}
		v := model.VirtualService{Name: "web", Proto: model.TCP, Addresses: []netip.Addr{host},
			Ports: []model.PortRange{model.Port(80)}}
		plane, err := paths.ChoosePlane(facts, v, nil)
		if err != nil || plane.Name() != c.plane {
			t.Errorf("with a policy for %s, the service uses %v (%v), want %s", c.name, plane, err, c.plane)
		}
	}
}

// TestChooseTakesTheCheapest compares the choice for each single promise with the
// table.
func TestChooseTakesTheCheapest(t *testing.T) {
	for _, d := range paths.Drivers() {
		for _, q := range promise.Publish() {
			var want model.Via
			for _, w := range paths.ByCost() {
				if want == "" && w.Promises(d.Name())[q].Kept {
					want = w.Name()
				}
			}
			choice, err := paths.Choose(plan.Facts{}, d, auto(model.TCP, q), nil)
			if choice.Via != want || (err == nil) != (want != "") {
				t.Errorf("%s with %s: %q, %v; want %q", d.Name(), q, choice.Via, err, want)
			}
		}
	}
}

func TestCostlierAndRefusedModesHaveReasons(t *testing.T) {
	choice, err := paths.Choose(plain, mustDriver(t, model.DriverBridge), auto(model.TCP, promise.LAN), at)
	if err != nil {
		t.Fatal(err)
	}
	last := choice.Candidates[len(choice.Candidates)-1]
	if last != (paths.Candidate{Via: model.ViaProxy, Verdict: paths.Costlier,
		Reason: "it fits, but a cheaper mode fits too"}) {
		t.Errorf("the last candidate is %+v, want the costlier proxy", last)
	}
	choice, err = paths.Choose(plain, mustDriver(t, model.DriverBridge),
		auto(model.TCP, promise.InputFirewall, promise.LANSource), at)
	for _, want := range []string{"no publish mode fits",
		"nat (it does not promise input-firewall: forwarded packets pass FORWARD, never INPUT)",
		"proxy (it does not promise lan-source: ", "ask for fewer promises"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	unkept := map[model.Via]promise.Question{}
	for _, c := range choice.Candidates {
		if c.Verdict != paths.Refused {
			t.Errorf("no mode fits, but the verdict is not refused: %+v", c)
		}
		unkept[c.Via] = c.Unkept
	}
	if unkept[model.ViaNAT] != promise.InputFirewall || unkept[model.ViaProxy] != promise.LANSource {
		t.Errorf("Unkept is not the first promise that the mode does not make: %v", unkept)
	}
}

func TestChooseRefuses(t *testing.T) {
	without := plan.Facts{Missing: map[plan.Feature]string{plan.FeatureNAT: "modprobe nf_tables"}}
	for _, c := range []struct {
		name    string
		facts   plan.Facts
		driver  model.Driver
		publish model.Publish
		at      *plan.Attachment
		want    string
	}{
		{"an unknown promise", plain, model.DriverBridge, auto(model.TCP, "world-peace"), at,
			`no publish mode promises "world-peace": want one or more of lan, host-address, `},
		{"a driver's promise", plain, model.DriverBridge, auto(model.TCP, promise.Isolated), at,
			`no publish mode promises "isolated"`},
		{"a driver without a network", plain, model.DriverNone, auto(model.TCP), nil,
			"no publish mode supports driver none"},
		{"a driver that says why", plain, model.DriverDevice, auto(model.TCP),
			&plan.Attachment{Closed: "it is on the LAN"}, "it is on the LAN"},
		{"an endpoint that no mode reaches", plain, model.DriverBridge, auto(model.TCP), &plan.Attachment{},
			"offers nothing to publish"},
		{"a kernel that lacks a feature", without, model.DriverBridge, auto(model.TCP), at,
			"nat (this kernel does not support it: nftables-nat: modprobe nf_tables)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			choice, err := paths.Choose(c.facts, mustDriver(t, c.driver), c.publish, c.at)
			if err == nil || !strings.Contains(err.Error(), c.want) || choice.Via != "" {
				t.Errorf("%q, %v; want an error about %q", choice.Via, err, c.want)
			}
		})
	}
}

func TestKeeps(t *testing.T) {
	via := func(v model.Via, promises ...promise.Question) model.Publish {
		p := auto(model.TCP, promises...)
		p.Via = v
		return p
	}
	for _, c := range []struct {
		driver  model.Driver
		publish model.Publish
		at      *plan.Attachment
		want    string // part of the error; empty is none
	}{
		{model.DriverBridge, via(model.ViaNAT), nil, ""},
		{model.DriverBridge, via(model.ViaNAT, promise.LANSource), nil, ""},
		{model.DriverRouted, via(model.ViaNAT, promise.PeerSource), nil, ""},
		{model.DriverBridge, via(model.ViaNAT, promise.PeerSource), nil,
			"it does not promise peer-source: neighbours on the bridge are masqueraded"},
		{model.DriverBridge, via(model.ViaNAT, promise.LANSource), &plan.Attachment{Away: true},
			"it does not promise lan-source: clients are masqueraded, because the sandbox's default route"},
		{model.DriverBridge, via(model.ViaNAT, promise.LAN, promise.InputFirewall), nil,
			"never INPUT: publish via auto"},
		{model.DriverBridge, via(model.ViaProxy, "world-peace"), nil, `no publish mode promises "world-peace"`},
	} {
		t.Run(fmt.Sprint(c.driver, c.publish.Via, c.publish.Promises), func(t *testing.T) {
			err := paths.Keeps(c.driver, c.publish, c.at)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}
