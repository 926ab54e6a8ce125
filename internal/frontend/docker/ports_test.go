package docker_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model"
)

// ports writes bindings as Docker sends them.
func ports(bindings ...string) string {
	return `"Options": {"com.docker.network.portmap": [` + strings.Join(bindings, ",") + `]}`
}

// published returns the publishes of the first endpoint, without its name.
func (p *plugin) published() []string {
	var all []string
	for _, v := range p.Attachments()[0].Publishes {
		v.Endpoint = ""
		all = append(all, v.String())
	}
	return all
}

// joined returns a plugin with an endpoint in a sandbox.
func joined(t *testing.T) *plugin {
	p := newPlugin(t)
	p.calls("NetworkDriver.CreateNetwork", created, `{}`)
	p.calls("NetworkDriver.CreateEndpoint", `{`+endpoint+`, "Interface": {"MacAddress": "02:00:00:00:00:01"}}`,
		`{"Interface":{}}`)
	p.post("POST", "NetworkDriver.Join", strings.NewReader(`{`+endpoint+`, "SandboxKey": "/a"}`))
	return p
}

func (p *plugin) programs(bindings ...string) {
	p.Helper()
	p.calls("NetworkDriver.ProgramExternalConnectivity", `{`+endpoint+`, `+ports(bindings...)+`}`, `{}`)
}

func TestPorts(t *testing.T) {
	var thousand []string
	for i := range 1000 {
		thousand = append(thousand,
			fmt.Sprintf(`{"Proto": 17, "IP": "", "Port": %d, "HostIP": "", "HostPort": %d, "HostPortEnd": %d}`, 5000+i,
				20000+i, 20000+i))
	}
	slices.Reverse(thousand)
	for _, c := range []struct {
		what     string
		bindings []string
		want     []string
	}{
		{"nothing", nil, nil},
		{"a thousand consecutive ports are one range", thousand, []string{"20000-20999/udp -> :5000-5999 via auto"}},
		{"a gap makes two ranges", slices.Concat(thousand[:499], thousand[500:]),
			[]string{"20000-20499/udp -> :5000-5499 via auto", "20501-20999/udp -> :5501-5999 via auto"}},
		{"different addresses make different publishes",
			[]string{`{"Proto": 6, "Port": 80, "HostIP": "127.0.0.1", "HostPort": 80, "HostPortEnd": 80}`,
				`{"Proto": 6, "Port": 81, "HostIP": "::", "HostPort": 81, "HostPortEnd": 81}`,
				`{"Proto": 6, "Port": 82, "HostIP": "::ffff:10.0.0.1", "HostPort": 82}`},
			[]string{"10.0.0.1:82/tcp -> :82 via auto", "127.0.0.1:80/tcp -> :80 via auto",
				"[::]:81/tcp -> :81 via auto"}},
		{"the same container port twice", []string{`{"Proto": 6, "Port": 80, "HostPort": 80}`,
			`{"Proto": 6, "Port": 80, "HostPort": 81}`}, []string{"80/tcp -> :80 via auto", "81/tcp -> :80 via auto"}},
		{"any port of a range", []string{`{"Proto": 6, "Port": 80, "HostPort": 8000, "HostPortEnd": 8009}`},
			[]string{"8002/tcp -> :80 via auto"}},
		{"any port, for consecutive container ports",
			[]string{`{"Proto": 6, "Port": 80}`, `{"Proto": 6, "Port": 81}`, `{"Proto": 17, "Port": 82}`},
			[]string{"32771-32772/tcp -> :80-81 via auto", "32773/udp -> :82 via auto"}},
	} {
		p := joined(t)
		p.Taken = []model.PortRange{{First: 8000, Last: 8001}, model.Port(32769)}
		for range 2 {
			p.programs(c.bindings...)
			got := p.published()
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", c.what, got, c.want)
			}
		}
	}
}

func TestInvalidPortsAreRefused(t *testing.T) {
	p := joined(t)
	p.Taken = []model.PortRange{model.Port(80), {First: 32768, Last: 60999}}
	for binding, why := range map[string]string{
		`{"Proto": 132, "Port": 7000, "HostPort": 7000}`:                            "sctp",
		`{"Proto": 6, "Port": 0, "HostPort": 7000}`:                                 "port 0",
		`{"Proto": 6, "Port": 80, "HostIP": "nowhere", "HostPort": 7000}`:           "want an address",
		`{"Proto": 6, "Port": 80, "HostIP": "203.0.113.9", "HostPort": 8080}`:       "Bind for 203.0.113.9:8080 failed: cannot assign requested address",
		`{"Proto": 6, "Port": 80, "HostPort": 80}`:                                  "Bind for 0.0.0.0:80 failed: port is already allocated: nginx (pid 7)",
		`{"Proto": 6, "Port": 80, "HostIP": "::1", "HostPort": 80}`:                 "Bind for [::1]:80 failed: port is already allocated",
		`{"Proto": 6, "Port": 80, "HostIP": "", "HostPort": 80, "HostPortEnd": 80}`: "already allocated",
		`{"Proto": 6, "Port": 80, "HostIP": "", "HostPort": "many"}`:                "cannot unmarshal",
	} {
		p.refuses("NetworkDriver.ProgramExternalConnectivity", `{`+endpoint+`, `+ports(binding)+`}`, why)
	}
	p.Taken = []model.PortRange{{First: 9000, Last: 9009}}
	p.refuses("NetworkDriver.ProgramExternalConnectivity", `{`+endpoint+`, `+
		ports(`{"Proto": 6, "Port": 80, "HostPort": 9000, "HostPortEnd": 9009}`)+`}`,
		"no host port is free in 9000-9009")
}

// TestOwnerOfPort names the container that has a port: as Docker does, or by its
// endpoint's id if its name is not known.
func TestOwnerOfPort(t *testing.T) {
	p := joined(t)
	binding := ports(`{"Proto": 6, "Port": 80, "HostPort": 80}`)
	second := strings.Replace(endpoint, "fedc", "0000", 1)
	p.calls("NetworkDriver.CreateEndpoint", `{`+second+`, "Interface": {"MacAddress": "02:00:00:00:00:01"}}`,
		`{"Interface":{}}`)
	p.post("POST", "NetworkDriver.Join", strings.NewReader(`{`+second+`, "SandboxKey": "/b"}`))
	p.calls("NetworkDriver.ProgramExternalConnectivity", `{`+second+`, `+binding+`}`, `{}`)
	owner := p.Find("docker-0000ba987654")
	for _, c := range []struct {
		what, ref, want string
		containerOf     func(endpoint string) string
	}{
		{"Docker knows it", owner.Ref, "container web has it", func(endpoint string) string {
			return map[string]string{"0000ba9876543210fedc": "web"}[endpoint]
		}},
		{"Docker does not know it", owner.Ref, "the container of endpoint 0000ba987654 has it", nil},
		{"it is not Docker's endpoint", "container:shop", "container shop has it", nil},
		{"it is not a container", "netns:shop", "endpoint docker-0000ba987654 has it", nil},
	} {
		owner.Ref, p.containerOf = c.ref, c.containerOf
		p.refuses("NetworkDriver.ProgramExternalConnectivity", `{`+endpoint+`, `+binding+`}`,
			"port is already allocated: "+c.want)
	}
}

// TestPortsOfACallArePublishedInOneStep checks that the daemon gets one request.
func TestPortsOfACallArePublishedInOneStep(t *testing.T) {
	p := joined(t)
	p.programs(`{"Proto": 6, "Port": 80, "HostPort": 80}`, `{"Proto": 6, "Port": 443, "HostPort": 443}`,
		`{"Proto": 17, "Port": 53, "HostPort": 53}`)
	if p.Exposed != 1 {
		t.Errorf("got %d requests, want 1", p.Exposed)
	}
}

// TestTwoGateways checks that one endpoint of a container publishes for IPv4, and
// another one for IPv6.
func TestTwoGateways(t *testing.T) {
	p := joined(t)
	binding := ports(`{"Proto": 6, "Port": 80, "HostPort": 80}`)
	p.calls("NetworkDriver.ProgramExternalConnectivity", `{`+endpoint+`, `+
		strings.Replace(binding, `{"com`, `{"com.docker.network.driver.private.no_proxy_6to4": true, "com`, 1)+`}`,
		`{}`)
	second := strings.Replace(endpoint, "fedc", "0000", 1)
	p.calls("NetworkDriver.CreateEndpoint", `{`+second+`, "Interface": {"MacAddress": "02:00:00:00:00:01"}}`,
		`{"Interface":{}}`)
	p.post("POST", "NetworkDriver.Join", strings.NewReader(`{`+second+`, "SandboxKey": "/a"}`))
	p.calls("NetworkDriver.ProgramExternalConnectivity", `{`+second+`, `+binding+`}`, `{}`)
	for i, want := range []string{"0.0.0.0:80/tcp", "[::]:80/tcp"} {
		if got := p.Attachments()[i].Publishes; len(got) != 1 || !strings.HasPrefix(got[0].String(), want) {
			t.Errorf("endpoint %d publishes %v, want %s", i, got, want)
		}
	}
}

// TestNetworkSettingsApplyToEndpoints checks that endpoints use their network's
// publish mode, promises and host address, also after a restart. An endpoint's own
// publish mode has precedence.
func TestNetworkSettingsApplyToEndpoints(t *testing.T) {
	for own, via := range map[string]model.Via{`{}`: model.ViaNAT, `{"via": "proxy"}`: model.ViaProxy} {
		p := newPlugin(t)
		p.calls("NetworkDriver.CreateNetwork", strings.Replace(created, `{`, `{"Options": {"com.docker.network.generic":
			{"via": "nat", "promises": "lan,survives", "com.docker.network.bridge.host_binding_ipv4": "127.0.0.1"}}, `,
			1), `{}`)
		p.calls("NetworkDriver.CreateEndpoint", `{`+endpoint+`, "Options": `+own+
			`, "Interface": {"MacAddress": "02:00:00:00:00:01"}}`, `{"Interface":{}}`)
		p.start()
		p.post("POST", "NetworkDriver.Join", strings.NewReader(`{`+endpoint+`, "SandboxKey": "/a"}`))
		p.programs(`{"Proto": 6, "Port": 80, "HostPort": 80}`,
			`{"Proto": 6, "Port": 81, "HostIP": "::", "HostPort": 81}`)
		all := p.Attachments()[0].Publishes
		if len(all) != 2 || all[0].Via != via || !slices.Equal(all[0].Promises, []string{"lan", "survives"}) ||
			all[0].HostAddr.String() != "127.0.0.1" || all[1].HostAddr.String() != "::" {
			t.Errorf("%s: %+v", own, all)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
