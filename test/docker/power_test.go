package docker_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/dockerd"
	"fairlead/test/engines"
)

// TestPowerLoss kills dockerd, the daemon and all their processes at once, removes what a host loses with its power,
// and starts both again in either order. The containers that their restart policies start must be reachable at their
// published ports, and at no other one.
//
// FAIRLEAD_POWER is the number of power losses per order. If it is set, the test also measures how long Docker's API
// takes to answer, with Fairlead's networks and with Docker's own.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	rounds := variable(t, "FAIRLEAD_POWER", 1)
	dir := programs(t)
	for name, programs := range engines.All(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, dir, programs).with(t)
			h.createPowered()
			first, second := []time.Duration{}, []time.Duration{}
			for range rounds {
				first = append(first, h.losesPower(true))
				second = append(second, h.losesPower(false))
			}
			if os.Getenv("FAIRLEAD_POWER") == "" {
				return
			}
			own := newPlainHost(t, dir, programs)
			var without []time.Duration
			for range rounds {
				own.cutPower()
				without = append(without, own.startsDocker())
			}
			t.Logf("Docker's API answers after (median of %d): the daemon first %v, dockerd first %v, without Fairlead %v",
				rounds, median(first), median(second), median(without))
		})
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(time.Millisecond)
}

// poweredNetworks are networks of each driver with either IPAM driver, and the networks of Docker that are compared to
// them.
var poweredNetworks = []struct{ name, options, plain string }{
	{"front", "--subnet 172.30.0.0/24 --ipv6 --subnet fd00:30::/64", "--subnet 172.30.0.0/24"},
	{"back", "--ipam-driver fairlead -o via=nat --subnet 172.30.1.0/24", "--subnet 172.30.1.0/24"},
	{"routed", "--ipam-driver fairlead -o driver=routed --subnet 172.30.2.0/24", "--subnet 172.30.2.0/24"},
	{"overlay", "-o vni=7 -o peers=192.0.2.1 --subnet 172.30.3.0/24", "--subnet 172.30.3.0/24"},
	{"lan", "-o parent=up0 --subnet 192.0.2.0/24 --gateway 192.0.2.1 --ip-range 192.0.2.128/25 --aux-address fairlead=192.0.2.100",
		"--subnet 172.30.4.0/24"},
	{"card", "-o driver=device -o parent=nic0 --subnet 198.51.100.0/24 --gateway 198.51.100.1", "--subnet 172.30.5.0/24"},
}

// powered are the containers. A container on the host's network has a label in place of -p.
var powered = []struct {
	name, network, policy, options string
	port                           int
	// label makes the container publish its port by a label.
	label string
}{
	{name: "p0", network: "front", policy: "always", port: 8000},
	{name: "p1", network: "name=front,driver-opt=via=proxy", policy: "unless-stopped", port: 8001},
	{name: "p2", network: "back", policy: "always", port: 8002},
	{name: "p3", network: "back", policy: "on-failure", port: 8003},
	{name: "p4", network: "routed", policy: "always", port: 8004},
	{name: "p5", network: "routed", policy: "unless-stopped", port: 8005},
	{name: "p6", network: "overlay", policy: "always", port: 8006},
	{name: "p7", network: "name=lan,driver-opt=via=nat", policy: "always", port: 8007},
	{name: "p8", network: "card", policy: "always"},
	{name: "p9", network: "host", policy: "always", port: 8009, label: "8009:80"},
	{name: "p10", network: "host", policy: "unless-stopped", port: 8010, label: "8010:80",
		options: "--label fairlead.unpublished=deny"},
	{name: "p11", network: "front", policy: "always", port: 8011,
		options: "--label com.docker.compose.project=shop --label com.docker.compose.service=web"},
	{name: "p12", network: "back", policy: "no", port: 8012},
}

// addCard adds the card if the host has lost it together with the namespace of a container. The kernel removes its peer
// later than the processes of the namespace.
const addCard = `ip link show nic0 >/dev/null 2>&1 || {
	ip -n lan link del far0 2>/dev/null || true
	ip link add nic0 type veth peer name far0 netns lan
	ip -n lan addr add 198.51.100.1/24 dev far0
	ip -n lan link set far0 up
}`

func (h *host) createPowered() {
	h.Helper()
	h.sh(addCard)
	for _, n := range poweredNetworks {
		args := append([]string{"network", "create", "-d", "fairlead"}, strings.Fields(n.options)...)
		h.docker(append(args, n.name)...)
	}
	for _, c := range powered {
		args := []string{"run", "-d", "--name", c.name, "--restart", c.policy, "--network", c.network}
		switch {
		case c.label != "":
			args = append(args, "--label", "fairlead.publish="+c.label)
		case c.port != 0:
			args = append(args, "-p", fmt.Sprintf("%d:80", c.port))
		}
		args = append(args, strings.Fields(c.options)...)
		h.docker(append(args, "program", "serve", "name:"+c.name, "tcp:80")...)
	}
	h.powers()
}

// newPlainHost makes a host without Fairlead that has the same containers on networks of Docker's own drivers.
func newPlainHost(t *testing.T, dir, programs string) *host {
	t.Helper()
	h := hostOf(t, dir, engines.Start(t, dockerd.Options{Enter: []string{"unshare", "--net"}, Programs: programs,
		Flags: []string{"--iptables=false", "--ip6tables=false", "--bridge=none"}}))
	for _, n := range poweredNetworks {
		h.docker(append(append([]string{"network", "create"}, strings.Fields(n.plain)...), n.name)...)
	}
	for i, c := range powered {
		network, _, _ := strings.Cut(strings.TrimPrefix(c.network, "name="), ",")
		args := []string{"run", "-d", "--name", c.name, "--restart", c.policy, "--network", network}
		if c.port != 0 && c.label == "" {
			args = append(args, "-p", fmt.Sprintf("%d:80", c.port))
		}
		h.docker(append(args, "program", "serve", fmt.Sprintf("tcp:%d", 80+100*i))...)
	}
	return h
}

// cutPower kills all processes of the engine and of Fairlead on the host, and removes the state that a host loses with
// its power: in the kernel, and in /run.
func (h *host) cutPower() {
	h.Helper()
	h.killAll("*/program | " + h.dir + "/fairlead | */dockerd | */docker-proxy | */containerd* | */runc")
	if *h.daemon != nil {
		h.daemonEnds()
	}
	h.sh(`
awk '$2 ~ "^/run/(docker|data)/" { print $2 }' /proc/mounts | sort -r | while read m; do umount -l "$m"; done
rm -rf /run/docker /run/docker.* /run/fairlead /sys/fs/bpf/fairlead
mkdir -p /run/docker/plugins
nft flush ruleset
ip -o link | sed -n 's/^[0-9]*: \(\(f[a-z][-_]\|br-\|veth\)[^:@]*\).*/\1/p' | while read l; do ip link del $l 2>/dev/null || true; done
find /sys/fs/cgroup/docker -depth -type d -exec rmdir {} ';' 2>/dev/null || true
echo 0 > /proc/sys/net/ipv4/ip_forward
echo 0 > /proc/sys/net/ipv6/conf/all/forwarding
ip route replace default via 192.0.2.1
ip -6 route replace default via 2001:db8:9::1
` + addCard)
}

// startsDocker starts dockerd, and returns how long its API took to answer.
func (h *host) startsDocker() time.Duration {
	h.Helper()
	begin := time.Now()
	if err := h.Restart(h.whole.Context()); err != nil {
		h.Fatal(err)
	}
	return time.Since(begin)
}

// losesPower cuts the power and starts both daemons again. It returns how long Docker's API took to answer.
func (h *host) losesPower(daemonFirst bool) (answers time.Duration) {
	h.Helper()
	h.cutPower()
	if daemonFirst {
		h.start()
		closed := h.asksOn(hostAddr+":80", "a port that is not published")
		answers = h.startsDocker()
		h.powers()
		h.neverAnswered(closed())
		return answers
	}
	started := make(chan error, 1)
	begin := time.Now()
	go func() { started <- h.Restart(h.whole.Context()) }()
	h.sh("await test -s /run/docker.pid")
	h.start()
	if err := <-started; err != nil {
		h.Fatal(err)
	}
	answers = time.Since(begin)
	h.powers()
	h.neverAnswered(h.asksBriefly(hostAddr + ":80"))
	return answers
}

// asksBriefly makes the LAN send some requests, and returns the answers.
func (h *host) asksBriefly(addr string) string {
	h.Helper()
	return h.sh(lan + " " + h.dir + "/program load tcp " + addr + " 20")
}

// neverAnswered fails the test if a request was answered. said is the output of program load.
func (h *host) neverAnswered(said string) {
	h.Helper()
	for line := range strings.Lines(said) {
		if !strings.Contains(line, "failed: ") {
			h.Errorf("a port that is not published answers the LAN: %s", line)
		}
	}
}

// powers waits until the containers are reachable that their restart policies start, and checks the others.
func (h *host) powers() {
	h.Helper()
	for _, c := range powered {
		runs := func() bool { return h.docker("inspect", "-f", "{{.State.Running}}", c.name) == "true" }
		switch {
		case c.policy == "no" && !runs():
			h.neverAnswered(h.asksBriefly(fmt.Sprintf("%s:%d", hostAddr, c.port)))
			h.docker("start", c.name)
		case c.policy == "on-failure" && !runs(): // dockerd decides by an exit code that it may not know
			h.docker("start", c.name)
		}
		at, in := fmt.Sprintf("%s:%d", hostAddr, c.port), lan
		if c.port == 0 {
			at = "198.51.100.2:80"
		}
		if name := h.asks(in, "tcp", at); name != c.name {
			h.Errorf("%s answers at the port of %s", name, c.name)
		}
	}
}
