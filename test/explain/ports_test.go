// Package explain_test runs fairlead ports and doctor on hosts with a Docker
// engine.
package explain_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/dockerd"
	"fairlead/test/compiled"
	"fairlead/test/engines"

	"github.com/google/go-cmp/cmp"
)

// host is the command that runs the engine in a network namespace with a LAN without other hosts.
var host = []string{"unshare", "--net", "sh", "-ec", uplink + `exec "$@"`, "host"}

const uplink = `
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip link set lo up
ip link add uplink type veth peer name lan
ip addr add 192.0.2.10/24 dev uplink
ip -6 addr add 2001:db8:9::10/64 dev uplink nodad
ip link set uplink up
ip link set lan up
ip route add default via 192.0.2.1
ip route add default via 2001:db8:9::1
`

// neighbours creates the namespaces from which the test connects: one on the LAN, and one on the
// containers' bridge.
const neighbours = `
ip netns add lan
ip link set lan netns lan
ip -n lan addr add 192.0.2.1/24 dev lan
ip -n lan link set lan up
ip netns add beside
ip link add beside type veth peer name eth0 netns beside
ip link set beside master docker0 up
ip -n beside addr add 172.17.0.99/16 dev eth0
ip -n beside link set eth0 up
ip -n beside route add default via 172.17.0.1
`

// build builds a program of this project into a directory of the test.
func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	out := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", out, pkg)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, text)
	}
	return out
}

// in runs a shell script on the engine's host.
func in(t *testing.T, e *dockerd.Engine, line string) string {
	t.Helper()
	cmd := e.Command(t.Context(), "sh", "-ec", line)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// engineCases returns engines that publish ports in different ways.
func engineCases(t *testing.T) map[string]dockerd.Options {
	newest := engines.New(t)
	return map[string]dockerd.Options{
		"debian with docker-proxy":  {Enter: host},
		"2026 without docker-proxy": {Enter: host, Programs: newest, Flags: []string{"--userland-proxy=false"}},
		"2026 with nftables":        {Enter: host, Programs: newest, Flags: []string{"--firewall-backend=nftables"}},
	}
}

// withProxy and withoutProxy are the expected lines, without process IDs. Docker's NAT applies to
// IPv4 only. Over IPv6, docker-proxy listens behind the host's firewall.
const (
	withProxy = `PORT  ADDRESS  PROCESS  CONTAINER  NETWORK  MODE  TO  REACHED FROM  FIREWALL
7000-7002/udp  *  docker-proxy  web  bridge  docker nat + docker-proxy  172.17.0.2:7000-7002  loopback, host, LAN (IPv4)  bypassed (IPv4), drops (IPv6)
8080/tcp  *  server  hosted  host  host  -  loopback, host  drops
8088/tcp  *  docker-proxy  web  bridge  docker nat + docker-proxy  172.17.0.2:8080  loopback, host, LAN (IPv4)  bypassed (IPv4), drops (IPv6)
9000/tcp  127.0.0.1  docker-proxy  web  bridge  docker nat + docker-proxy  172.17.0.2:8080  loopback  -
`
	withoutProxy = `PORT  ADDRESS  PROCESS  CONTAINER  NETWORK  MODE  TO  REACHED FROM  FIREWALL
7000-7002/udp  0.0.0.0  dockerd  web  bridge  docker nat  172.17.0.2:7000-7002  loopback, host, containers, LAN  bypassed
8080/tcp  *  server  hosted  host  host  -  loopback, host  drops
8088/tcp  0.0.0.0  dockerd  web  bridge  docker nat  172.17.0.2:8080  loopback, host, containers, LAN  bypassed
9000/tcp  127.0.0.1  dockerd  web  bridge  docker nat  172.17.0.2:8080  loopback  -
`
)

// doctorWant lists the checks with findings, with docker-proxy and without.
var doctorWant = map[bool][]string{
	true:  {"firewall-bypassed", "docker-proxy", "bridge-filter"},
	false: {"firewall-bypassed", "bridge-filter"},
}

// TestDockerPorts checks, with every engine, that a published port is shown as one line with its
// container.
func TestDockerPorts(t *testing.T) {
	dir := t.TempDir()
	fairlead := filepath.Join(dir, "fairlead")
	if err := compiled.Fairlead(fairlead); err != nil {
		t.Fatal(err)
	}
	server := build(t, dir, "fairlead/test/e2e/testdata/server")
	for name, opt := range engineCases(t) {
		t.Run(name, func(t *testing.T) {
			e := engines.Start(t, opt)
			in(t, e, firewall+neighbours)
			engines.Image(t, e, "server", server)
			for _, run := range []string{
				"run --detach --name web --publish 8088:8080 --publish 127.0.0.1:9000:8080 --publish 7000-7002:7000-7002/udp server",
				"run --detach --name hosted --network host server",
			} {
				if _, err := e.Run(t.Context(), strings.Fields(run)...); err != nil {
					t.Fatal(err)
				}
			}
			in(t, e,
				"web=$(docker inspect --format '{{.State.Pid}}' web); for at in $$ $web; do until nsenter --net=/proc/$at/ns/net ss -Hltn | grep -q :8080; do :; done; done")
			want := withProxy
			if slices.Contains(opt.Flags, "--userland-proxy=false") {
				want = withoutProxy
			}
			got := tidy(in(t, e, fairlead+" ports"))
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			truth(t, e, fairlead)
			checks := regexp.MustCompile(`(?m)^(?:problem|warning|note)  ([a-z0-9-]+):`).FindAllStringSubmatch(in(t, e,
				fairlead+" doctor"), -1)
			var found []string
			for _, c := range checks {
				if c[1] != "localhost-v6" { // depends on the machine's /etc/hosts
					found = append(found, c[1])
				}
			}
			if want := doctorWant[want == withProxy]; !slices.Equal(found, want) {
				t.Errorf("doctor finds %v, want %v", found, want)
			}
		})
	}
}

// truth connects to each TCP port from all places, and compares the results with the report.
func truth(t *testing.T, e *dockerd.Engine, fairlead string) {
	t.Helper()
	var list struct {
		Ports []struct {
			Proto string
			Ports struct{ First int }
			Reach map[string]string
		}
	}
	if err := json.Unmarshal([]byte(in(t, e, fairlead+" ports -o json")), &list); err != nil {
		t.Fatal(err)
	}
	places := []struct{ name, from, at string }{
		{"loopback", "", "127.0.0.1"}, {"host", "", "192.0.2.10"},
		{"containers", "ip netns exec beside", "172.17.0.1"}, {"lan", "ip netns exec lan", "192.0.2.10"},
	}
	for _, p := range list.Ports {
		for _, place := range places {
			if p.Proto != "tcp" {
				continue
			}
			wait := 30. // for connections that must succeed
			if p.Reach[place.name] == "no" {
				wait = 0.5
			}
			dial := fmt.Sprintf("%s socat -u OPEN:/dev/null TCP:%s:%d,connect-timeout=%g", place.from, place.at,
				p.Ports.First, wait)
			answers := map[bool]string{true: "yes", false: "no"}[e.Command(t.Context(), "sh", "-c", dial).Run() == nil]
			if p.Reach[place.name] != answers {
				t.Errorf("port %d from %s: reported %s, but in fact %s", p.Ports.First, place.name, p.Reach[place.name],
					answers)
			}
		}
	}
}

// firewall drops all incoming packets except those that its rules accept.
const firewall = `nft -f - <<'EOF'
table inet fw { chain in {
	type filter hook input priority filter; policy drop;
	iifname "lo" accept
	ct state established,related accept
	ip saddr 192.0.2.0/28 tcp dport 22 accept
}; }
EOF
`

// tidy removes the parts that differ between runs.
func tidy(table string) string {
	table = regexp.MustCompile(` \(\d+\)`).ReplaceAllString(table, "")
	table = regexp.MustCompile(`  +`).ReplaceAllString(table, "  ")
	return strings.ReplaceAll(table, " \n", "\n")
}
