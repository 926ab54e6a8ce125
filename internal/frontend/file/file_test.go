package file_test

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/file"
	"fairlead/internal/model"
)

func read(t *testing.T, text string) *file.Set {
	t.Helper()
	s, err := file.Read([]file.Input{{Name: "f.yaml", Text: []byte(text)}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

// full contains every field in every form.
const full = `
name: shop
x-limits: &limit 100mbit
networks:
  web: {subnet: [172.30.0.0/24, "fd00:30::/64"], gateway: 172.30.0.9, range: 172.30.0.128/25, address: fd00:30::5, filter: on, hairpin: true, allow-overlap: true}
  lan:
    driver: macvlan
    parent: eth0
    mode: private
    vlan: 7
    mtu: 1400
    internal: true
  far:
    driver: vxlan
    vni: 42
    port: 4790
    subnet: 10.9.0.0/24
    underlay: eth1
    peer:
      - 192.0.2.2=10.9.0.128/25
      - address: 192.0.2.3
        further: [192.0.2.4]
        range: 10.9.0.64/26
        endpoint: {address: [10.9.0.65], mac: "02:00:00:00:00:01"}
    encrypt: true
    key-file: /etc/fairlead/key
  wide: {driver: vxlan, vni: 43, group: 239.0.0.99}
  part: {driver: device, parent: ib0, pkey: 0x8001}
attachments:
  - sandbox: container:shop
    network: web
    address: [172.30.0.7, "fd00:30::7"]
    gateway: 172.30.0.1
    route: ["10.0.0.0/8,via=172.30.0.254", {to: 10.64.0.0/10, via: 172.30.0.254}, {to: 198.18.0.0/15}]
    mac: 02:42:ac:11:00:02
    rate-out: *limit
    rate-in: 2.5gbit
    publish:
      - 8080:80
      - "[::1]:5353:53/udp"
      - {published: 9000-9010, target: 8000-8010, host_ip: "::", protocol: udp, via: nat, promise: [lan, "127.0.0.1"], proxy-protocol: 1, reset: true}
  - {sandbox: netns:db, name: db, network: lan, interface: eth1, dhcp: true}
  - {sandbox: /run/netns/x, device: "0000:3b:02.1", address: 192.0.2.7/24, gateway: none}
  - {sandbox: netns:y, device: ib0, pkey: 0x8002}
services:
  shop: {address: 192.0.2.10, port: 80, reals: 10.0.0.2}
  web:
    address: [192.0.2.10, 192.0.2.11]
    port: [443, 8000-8010]
    protocol: tcp
    interface: eth0
    scheduler: wrr
    forward: nat
    plane: auto
    source-nat: routed
    persistence: 5m
    sorry: 10.0.0.9:80
    quorum: 2
    panic: 30
    drain: 1h30m
    check: {type: none, port: 81, interval: 1s, fast: 500ms, down: 5s, timeout: 1s, rise: 1, fall: 4, jitter: -1, initial: up, slow-start: 1m, method: HEAD,
      path: /healthz, host: "8080", status: "200,301-302", body: "^ok: .*", tls: true, tls-name: example.org, expiry: 240h, service: s, query: q, record: AAAA,
      send: "a\r\n", expect: "null", command: [/bin/true, "-v"], agent: 9999, passive: true}
    reals:
      - 10.0.0.3:8080
      - "10.0.0.4,weight=0"
      - {address: 10.0.0.5, port: 81, weight: 3, state: draining}
      - {label: app=web, network: web, port: 80}
      - name=web-*:8080
      - "label=image=nginx:1.27,port=80"
  far: {address: 192.0.2.12, port: 80, forward: tunnel, tunnel: "gue:6080,csum", reals: 10.0.0.2}
  farther: {address: 192.0.2.13, port: 80, forward: tunnel, tunnel: gue:6080, reals: 10.0.0.2}
  dns: {address: "2001:db8::53", port: 53, protocol: udp, check: docker, reals: ["[fd00::53]:5353", "fd00::54"]}
  cart:
    address: [192.0.2.9, {virtual: 192.0.2.10/24, candidates: [host1, host2], hold: 1s, link: eth0}]
    port: 443
    reals: 10.0.0.2
  again: {address: {virtual: 192.0.2.11/24}, port: 443, reals: 10.0.0.2}
  all: {cluster: true, ingress: [host1, host2], address: 192.0.2.14, port: 80, check: tcp, reals: network=shop}
  each: {cluster: true, address: {virtual: 192.0.2.15/24}, port: 80, reals: network=shop}
addresses: [192.0.2.11/24, {address: "2001:db8::10/64", candidates: host1},
  {address: 203.0.113.10/32, announce: bgp}]
`

// TestWriteAndReadRoundTrip writes and reads Specs in YAML and in JSON.
func TestWriteAndReadRoundTrip(t *testing.T) {
	example, err := os.ReadFile("../../../examples/fairlead.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{full, string(example), "{}", ""} {
		spec := read(t, text).Spec
		var yaml, json bytes.Buffer
		if err := file.Write(&yaml, spec); err != nil {
			t.Fatal(err)
		}
		if err := file.WriteJSON(&json, spec); err != nil {
			t.Fatal(err)
		}
		for _, again := range []string{yaml.String(), json.String()} {
			got := read(t, again).Spec
			if !sameNetworks(got, spec) || !reflect.DeepEqual(got.Attachments, spec.Attachments) ||
				got.Set != spec.Set || !sameServices(got, spec) ||
				!reflect.DeepEqual(got.Addresses, spec.Addresses) {
				t.Errorf("written:\n%s\nreads as %+v\nwant %+v", again, got, spec)
			}
		}
	}
}

// sameNetworks compares networks. Their order does not matter.
func sameNetworks(a, b api.Spec) bool {
	if len(a.Networks) != len(b.Networks) {
		return false
	}
	for _, n := range a.Networks {
		found := false
		for _, o := range b.Networks {
			found = found || n.Equal(o)
		}
		if !found {
			return false
		}
	}
	return true
}

// sameServices compares services. Their order does not matter.
func sameServices(a, b api.Spec) bool {
	for _, v := range a.Services {
		if !slices.ContainsFunc(b.Services, v.Equal) {
			return false
		}
	}
	for _, v := range a.ClusterServices {
		if !slices.ContainsFunc(b.ClusterServices, v.Equal) {
			return false
		}
	}
	return len(a.Services) == len(b.Services) && len(a.ClusterServices) == len(b.ClusterServices)
}

// TestReadServices checks the values of a service's fields.
func TestReadServices(t *testing.T) {
	spec := read(t, full).Spec
	i := slices.IndexFunc(spec.Services, func(v model.VirtualService) bool { return v.Name == "web" })
	v := spec.Services[i]
	var reals []string
	for _, r := range v.Reals {
		reals = append(reals, fmt.Sprintf("%s weight %d %s", r, r.Weight, r.State))
	}
	const want = `web (192.0.2.10:443/tcp, 192.0.2.10:8000-8010/tcp, 192.0.2.11:443/tcp, 192.0.2.11:8000-8010/tcp)
10.0.0.3:8080 weight 1 |10.0.0.4 weight 0 |10.0.0.5:81 weight 3 draining|label=app=web,network=web:80 weight 1 |name=web-*:8080 weight 1 |label=image=nginx:1.27:80 weight 1 `
	if got := v.String() + "\n" + strings.Join(reals, "|"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if c := v.Check; c.Send != "a\r\n" || c.Expect != "null" || c.Jitter != -1 || c.Interval != time.Second ||
		len(c.Command) != 2 || !c.Passive {
		t.Errorf("%+v", c)
	}
}

// TestMistakesHaveLinesAndFields checks that all mistakes are reported at once.
func TestMistakesHaveLinesAndFields(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"services of a cluster": {`services:
  a: {ingress: host1, address: 192.0.2.10, port: 80}
  b: {cluster: yes, address: 192.0.2.10, port: 80}
  c: {cluster: true, address: 192.0.2.10, port: 80}
---
services: {c: {address: 192.0.2.10, port: 81}, d: {cluster: true}}
`, `f.yaml:2: services.a: ingress: only services of a cluster have it: add cluster: true, or leave it out
f.yaml:3: services.b.cluster: "yes": want true or false
f.yaml:6: services.c: service c is declared in f.yaml:4 already: leave one out
f.yaml:6: services.d: missing an address and a port: write e.g. address: 192.0.2.10 and port: 80`}, "addresses of a cluster": {`services:
  a: {address: {virtual: 192.0.2.10/24, hold: 1s}, port: 80}
  b: {address: {virtual: 192.0.2.10, hold: soon}, port: 80}
  c: {address: {candidates: a}, port: 80}
  d: {address: {virtual: 192.0.2.10/24, hold: 2s}, port: 80}
addresses:
  - host1
  - {virtual: 192.0.2.10/24}
`, `f.yaml:3: services.b.address.virtual: "192.0.2.10": want an address with the length of its subnet
f.yaml:3: services.b.address.hold: "soon": want a time, e.g. 1s
f.yaml:4: services.c.address: missing an address: write e.g. virtual: 192.0.2.10/24
f.yaml:5: services.d.address: address 192.0.2.10 is declared in f.yaml:2 with other settings: leave one out
f.yaml:7: addresses[0]: "host1": want an address with the length of its subnet
f.yaml:8: addresses[1].virtual: there is no such field: want one of address, link, hold, candidates, announce`}, "all at once": {`networks:
  web:
    driver: brigde
    subnet: 172.30.0.0
    gateway: 10.0.0.1
    vlan: 70000
    internal: yes
    mtu: -1
    pkey: 0
    colour: red
    driver: bridge
  web: {}
attachments:
  - network: web
    sandbox: [a, b]
    publish:
      - 80
      - {published: 80}
      - {published: 8080, target: 80, via: magic, promise: [speed]}
    route: {to: x}
    rate-out: fast
  - just a word
  - {network: web}
  - {sandbox: x}
  - {sandbox: x, network: web, device: eth0}
  - {sandbox: x, network: web, dhcp: true, address: 10.0.0.1}
`, `f.yaml:3: networks.web.driver: driver "brigde": want one of bridge, routed, macvlan, ipvlan, vxlan, device
f.yaml:4: networks.web.subnet: subnet "172.30.0.0": want an address and a prefix length, e.g. 172.30.0.0/24
f.yaml:5: networks.web.gateway: gateway 10.0.0.1 is in no subnet of the network: add the subnet
f.yaml:6: networks.web.vlan: "70000": want a number up to 65535
f.yaml:7: networks.web.internal: "yes": want true or false
f.yaml:8: networks.web.mtu: "-1": want a number up to 65535
f.yaml:9: networks.web.pkey: pkey "0": want a partition key of 16 bits, e.g. 0x8001
f.yaml:10: networks.web.colour: there is no such field: want one of driver
f.yaml:11: networks.web.driver: it is declared twice, first in line 3: leave one out
f.yaml:12: networks.web: it is declared twice, first in line 2: leave one out
f.yaml:15: attachments[0].sandbox: want a single value
f.yaml:17: attachments[0].publish[0]: want a host port and a container port, e.g. 8080:80
f.yaml:18: attachments[0].publish[1]: missing target, the container port: write e.g. {published: 8080, target: 80}
f.yaml:19: attachments[0].publish[2].via: via "magic": want one of auto, ebpf, nat, proxy
f.yaml:19: attachments[0].publish[2].promise[0]: no publish mode promises "speed"
f.yaml:20: attachments[0].route.to: to "x": want an address and a prefix length, e.g. 10.0.0.0/8
f.yaml:21: attachments[0].rate-out: "fast": want a number and one of kbit, mbit, gbit, e.g. 100mbit
f.yaml:22: attachments[1]: want fields, each as NAME: VALUE
f.yaml:23: attachments[2]: sandbox: name the sandbox
f.yaml:24: attachments[3]: want a network or a device, and not both: name one of them
f.yaml:25: attachments[4]: want a network or a device, and not both: name one of them
f.yaml:26: attachments[5]: dhcp and address: want only one of them`},
		"services": {`services:
  a: {address: 192.0.2.300, port: http, colour: red}
  b:
    address: 192.0.2.1
    port: 80
    scheduler: fair
    drain: 5
    quorum: two
    check: {interval: 1s}
    reals: [10.0.0.1, 10.0.0.1:x, {address: 10.0.0.2, label: a}, {weight: many, label: a}, "weight=3", {address: 10.0.0.2, state: asleep}]
  c: {}
  d: {address: 192.0.2.1, port: 80, check: {type: icmp, typo: x}}
  d: {}
---
services: {b: {}}
---
services: [a]
`, `f.yaml:2: services.a.colour: there is no such field: want one of address, port, protocol, interface
f.yaml:2: services.a.address: address "192.0.2.300": want an address
f.yaml:2: services.a.port: parse port "http": want a port
f.yaml:6: services.b.scheduler: scheduler "fair": want one of mh, sh, rr
f.yaml:7: services.b.drain: drain "5": want a time with its unit, e.g. 500ms, 2s, 5m or 30d
f.yaml:8: services.b.quorum: quorum "two": want a number
f.yaml:9: services.b.check: type: want one of tcp, http
f.yaml:10: services.b.reals[1]: real server "10.0.0.1:x": want an address, with or without a port
f.yaml:10: services.b.reals[2]: want an address or a selector (label, name, network), and not both
f.yaml:10: services.b.reals[3].weight: weight "many": want 0 to 65535
f.yaml:10: services.b.reals[4]: real server "weight=3": want an address, or a selector
f.yaml:10: services.b.reals[5].state: want draining or down
f.yaml:11: services.c: missing an address and a port
f.yaml:12: services.d.check.typo: there is no such field
f.yaml:12: services.d.check.type: type "icmp": want one of tcp, http
f.yaml:13: services.d: it is declared twice, first in line 12
f.yaml:15: services.b: service b is declared in f.yaml:4 already
f.yaml:17: services: want services by their names`},
		"no YAML": {"a: [b\nc: d\n", "f.yaml:"},
		"tabs": {"networks:\n\tweb: {}\n",
			"f.yaml:2: found character that cannot start any token"},
		"a list": {"- a\n", "f.yaml:1: want fields"},
		"unknown top": {"network: {}\n",
			"f.yaml:1: network: there is no such field: want one of name, networks, attachments, services"},
		"two names": {"name: a\n---\nname: b\n",
			`f.yaml:3: name: "b": another file or document names the set "a"`},
		"a network more": {"networks: {a: }\n---\nnetworks: {a: }\n",
			"f.yaml:3: networks.a: network a is declared in f.yaml:1 already: leave one out"},
		"a bad alias":               {"name: *x\n", "f.yaml:1: unknown anchor (hidden) referenced"},
		"alias in a later document": {"# *x\nx-a: |\n  *x\n---\nnetworks: {web: {\n  driver: *x,\n  subnet: '*x'}}\nservices: *x\n", "f.yaml:6: unknown anchor (hidden) referenced"},
		"merge key": {"x-a: &a {driver: bridge}\nnetworks: {a: {<<: *a}}\n",
			"f.yaml:2: networks.a.<<: there is no such field"},
	} {
		_, err := file.Read([]file.Input{{Name: "f.yaml", Text: []byte(c.text)}})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		got, want := strings.Split(err.Error(), "\n"), strings.Split(c.want, "\n")
		for i := range want {
			if len(got) != len(want) || !strings.Contains(got[i], want[i]) {
				t.Errorf("%s:\n%v\nwant\n%s", name, err, c.want)
				break
			}
		}
	}
}

// TestSeveralFilesAreOneSet checks that the daemon's mistakes get the file and line of
// their declaration.
func TestSeveralFilesAreOneSet(t *testing.T) {
	s, err := file.Read([]file.Input{
		{Name: "a.yaml",
			Text: []byte("name: shop\nnetworks:\n  web: {subnet: 10.0.0.0/24}\nattachments: {sandbox: netns:a, network: web}\n")},
		{Name: "b.yaml",
			Text: []byte("attachments:\n  - sandbox: netns:b\n    network: web\n    address: [fd00::1, 10.9.9.9]\n    publish: 80:80\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Spec.Set != "shop" || len(s.Spec.Attachments) != 2 {
		t.Errorf("%+v", s.Spec)
	}
	located := s.Locate(&api.Fault{Code: api.Conflict, Err: api.Mistakes{
		{At: "attachments[1]", Text: "address 10.9.9.9 is in no subnet of network web"},
		{At: "attachments[1].publishes[0]", Text: "port taken"},
		{At: "networks[0]", Text: "subnet 10.0.0.0/24 overlaps another"},
		{At: "attachments[0]", Text: "it is not there"},
		{Text: "there is more"}}})
	const want = `b.yaml:4: attachments[0].address[1]: address 10.9.9.9 is in no subnet of network web
b.yaml:5: attachments[0].publish: port taken
a.yaml:3: networks.web.subnet: subnet 10.0.0.0/24 overlaps another
a.yaml:4: attachments[0]: it is not there
a.yaml: there is more`
	if located.Error() != want || api.CodeOf(located) != api.Conflict {
		t.Errorf("%s: %v\nwant %s", api.CodeOf(located), located, want)
	}
}

// FuzzRead checks that Read never crashes, and that Write can write what it returns.
func FuzzRead(f *testing.F) {
	for _, text := range []string{full, "services: {a: {address: 192.0.2.1, port: [80, 1-2], check: {command: [a]}, reals: [{label: 'a: b'}, 'name=x:1,weight=-1', '[::1]:', ',']}}", "services: {a: , a: []}", "a: &a [*a]", "networks: {a: &a {subnet: *a}}", "? {}\n: x", "networks:\n  ? [a]\n  : b", "--- !!binary x", "attachments: [[[]]]", "name: \"\\0\""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := file.Read([]file.Input{{Name: "f", Text: text}})
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := file.Write(&out, s.Spec); err != nil {
			t.Fatal(err)
		}
	})
}
