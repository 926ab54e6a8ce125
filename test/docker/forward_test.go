package docker_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/lab/dockerd"
	"fairlead/test/engines"
)

// TestDefaultHost runs Docker with its default flags: it filters packets, enables forwarding, and
// therefore drops forwarded packets.
func TestDefaultHost(t *testing.T) {
	t.Parallel()
	dir := programs(t)
	for name, programs := range engines.All(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newDefaultHost(t, dir, programs).forwards()
		})
	}
	t.Run("legacy", func(t *testing.T) {
		t.Parallel()
		legacy := t.TempDir()
		for _, tool := range []string{"iptables", "ip6tables", "iptables-save", "ip6tables-save"} {
			program := strings.Replace(tool, "tables", "tables-legacy", 1)
			if err := os.Symlink("/usr/sbin/"+program, filepath.Join(legacy, tool)); err != nil {
				t.Fatal(err)
			}
		}
		newDefaultHost(t, dir, legacy).forwards()
	})
	t.Run("nftables", func(t *testing.T) {
		t.Parallel()
		h := hostOf(t, dir, engines.Start(t, dockerd.Options{Enter: forwarding("1"), Programs: engines.New(t),
			Flags: []string{"--firewall-backend=nftables"}}))
		h.start()
		h.setUpForwarding()
		h.removeForwarding()
	})
}

// forwarded are the containers that setUpForwarding starts.
var forwarded = []string{"web", "peer", "other", "shut", "docker", "near", "far", "apart"}

// removeForwarding removes what setUpForwarding has created.
func (h *host) removeForwarding() {
	h.Helper()
	h.docker(append([]string{"rm", "-f"}, forwarded...)...)
	h.docker("network", "rm", "net", "net2", "net3", "net4", "net5")
}

// forwarding returns the command that starts an engine in a network namespace in which forwarding
// is enabled or disabled.
func forwarding(value string) []string {
	return []string{"unshare", "--net", "sh", "-ec", `
for f in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding /proc/sys/net/ipv6/conf/default/forwarding; do echo ` + value + ` > $f; done
exec "$@"`, "sh"}
}

func newDefaultHost(t *testing.T, dir, programs string) *host {
	t.Helper()
	return hostOf(t, dir, engines.Start(t, dockerd.Options{Enter: forwarding("0"), Programs: programs}))
}

// forwards checks that containers reach other hosts and are reachable on a host whose forwarded
// packets Docker drops, even after changes to Docker's rules.
func (h *host) forwards() {
	if !strings.Contains(h.sh("iptables -S FORWARD"), "-P FORWARD DROP") {
		h.Fatal("Docker does not drop forwarded packets: the test has no effect")
	}
	rules := h.sh("iptables -S; ip6tables -S")
	h.start()
	h.setUpForwarding()
	h.routedStayApart()

	// A user's rules in DOCKER-USER take precedence.
	h.sh("iptables -I DOCKER-USER -s " + lanAddr + " -p tcp --dport 80 -j DROP")
	h.refused(lan, "tcp", hostAddr+":8080")
	h.sh("iptables -D DOCKER-USER -s " + lanAddr + " -p tcp --dport 80 -j DROP")
	h.passes()

	for _, disturb := range []string{"iptables -F DOCKER-USER", "iptables -F FAIRLEAD", "iptables -F FAIRLEAD-OUT",
		"iptables -F"} {
		h.sh(disturb)
		h.passes()
	}
	if err := h.Signal(syscall.SIGTERM); err != nil {
		h.Fatal(err)
	}
	h.sh("iptables -F; iptables -X FAIRLEAD || true; iptables -P FORWARD ACCEPT")
	if err := h.Restart(h.Context()); err != nil {
		h.Fatal(err)
	}
	h.sh("iptables -P FORWARD DROP") // Docker does so once per boot
	h.docker(append([]string{"start"}, forwarded...)...)
	h.checkForwarding()

	// A daemon started in place of a killed one removes the rules if it must not use DOCKER-USER.
	h.kill()
	h.startWith("--docker-user=false")
	h.awaitNoRules()
	h.refused(lan, "tcp", hostAddr+":8080")
	h.checkReach("8080")
	h.kill()
	h.start()
	h.passes()
	h.checkReach("8080")
	h.removeForwarding()
	h.awaitNoRules()
	if now := h.sh("iptables -S; ip6tables -S"); !strings.HasPrefix(rules, "-P INPUT") ||
		strings.Contains(now, "airlead") {
		h.Errorf("the host's rules are now\n%s", now)
	}
}

// setUpForwarding creates networks, and checks which packets of theirs are forwarded.
func (h *host) setUpForwarding() {
	h.Helper()
	h.sh(lan + " " + h.dir + "/program serve tcp:80 udp:53 > /dev/null 2>&1 & echo $! > /run/lan")
	h.sh(lan + " ip route add 172.30.0.0/16 via " + hostAddr)
	h.docker("network", "create", "-d", "fairlead", "--subnet", "172.30.0.0/24", "--ipv6", "--subnet", "fd00:30::/64",
		"net")
	h.docker("network", "create", "-d", "fairlead", "--subnet", "172.30.1.0/24", "net2")
	h.docker("network", "create", "-d", "fairlead", "--internal", "--subnet", "172.30.2.0/24", "net3")
	h.docker("run", "-d", "--name", "web", "--network", "name=net,driver-opt=via=nat,ip=172.30.0.9,ip6=fd00:30::9",
		"-p", "8080:80", "program", "serve", "tcp:80")
	for name, network := range map[string]string{"peer": "net", "other": "net2", "shut": "net3", "docker": "bridge"} {
		h.docker("run", "-d", "--name", name, "--network", network, "program", "serve", "tcp:80", "tcp:81")
	}
	h.docker("network", "create", "-d", "fairlead", "-o", "driver=routed", "--subnet", "172.30.4.0/24", "--ipv6",
		"--subnet", "fd00:34::/64", "net4")
	h.docker("network", "create", "-d", "fairlead", "-o", "driver=routed", "--subnet", "172.30.5.0/24", "--ipv6",
		"--subnet", "fd00:35::/64", "net5")
	for name, network := range map[string]string{"near": "4", "far": "4", "apart": "5"} {
		last := map[string]string{"near": "8", "far": "9", "apart": "9"}[name]
		h.docker("run", "-d", "--name", name, "--network", "net"+network, "--ip", "172.30."+network+"."+last, "--ip6",
			"fd00:3"+network+"::"+last, "program", "serve", "tcp:80", "udp:53")
	}
	h.checkForwarding()
}

// checkForwarding checks which packets of the networks are forwarded and which are not.
func (h *host) checkForwarding() {
	h.Helper()
	h.passes()
	docker := h.docker("inspect", "-f",
		"{{.NetworkSettings.IPAddress}}{{range .NetworkSettings.Networks}} {{.IPAddress}}{{end}}", "docker")
	docker = strings.Fields(docker)[0]
	for _, blocked := range []struct{ from, to string }{
		{"other", "172.30.0.9:80"}, {"other", docker + ":80"}, {"peer", docker + ":81"}, {"docker", "172.30.0.9:80"},
		{"near", "172.30.0.9:80"}, {"shut", lanAddr + ":80"}, {"shut", "172.30.0.9:80"},
		{"shut", docker + ":80"}, {"shut", hostAddr + ":8080"},
	} {
		h.refused(h.inside(blocked.from), "tcp", blocked.to)
	}
	h.refused(lan, "tcp", "172.30.0.9:80")
}

// inside returns the words that run a command in the network namespace of a container.
func (h *host) inside(container string) string {
	h.Helper()
	return "nsenter --net=/proc/" + h.docker("inspect", "-f", "{{.State.Pid}}", container) + "/ns/net"
}

// routedStayApart checks that Docker's firewall still drops packets to a routed network from other networks.
func (h *host) routedStayApart() {
	h.Helper()
	for _, from := range []string{"apart", "other"} { // Docker itself accepts what its own bridges send
		h.refused(h.inside(from), "tcp", "172.30.4.9:80")
	}
	h.refused(h.inside("near"), "tcp", "172.30.5.9:80")
	h.refused(lan, "tcp", "172.30.4.9:80")
}

// passes checks packets of the networks that must be forwarded.
func (h *host) passes() {
	h.Helper()
	for _, asked := range []struct{ network, to string }{{"tcp", lanAddr + ":80"}, {"udp", lanAddr + ":53"},
		{"tcp", "[" + lanAddr6 + "]:80"}, {"tcp", "web:80"}} {
		if _, err := h.Run(h.Context(), "exec", "peer", "/program", "ask", asked.network, asked.to); err != nil {
			h.Errorf("%v\n%s", err, h.sh("iptables-save -c -t filter; iptables-legacy-save; nft list ruleset || true"))
		}
	}
	for _, asked := range []struct{ network, to string }{{"tcp", "172.30.4.9:80"}, {"udp", "172.30.4.9:53"},
		{"tcp", "[fd00:34::9]:80"}, {"udp", "[fd00:34::9]:53"}} { // within a routed network
		if _, err := h.Run(h.Context(), "exec", "near", "/program", "ask", asked.network, asked.to); err != nil {
			h.Errorf("%v\n%s", err, h.sh("iptables-save -c -t filter; ip6tables-save -c -t filter"))
		}
	}
	if from := h.asks(lan, "tcp", hostAddr+":8080"); from != lanAddr {
		h.Errorf("the server sees the LAN as %q", from)
	}
	h.asks(lan, "tcp", "["+hostAddr6+"]:8080")
	h.docker("exec", "other", "/program", "ask", "tcp", hostAddr+":8080")
}

// checkReach connects to the port from the LAN and from the host, via each address family, and fails
// the test unless `fairlead ports` reports the same result.
func (h *host) checkReach(port string) {
	h.Helper()
	var ready struct {
		Ports []struct{ Reach, Reach6 map[string]string }
	}
	text := h.sh(h.dir + "/fairlead ports -o json " + port)
	if err := json.Unmarshal([]byte(text), &ready); err != nil || len(ready.Ports) != 1 {
		h.Fatalf("%v: %s", err, text)
	}
	byFamily := []map[string]string{ready.Ports[0].Reach, ready.Ports[0].Reach6}
	if byFamily[1] == nil {
		byFamily[1] = byFamily[0]
	}
	for i, addr := range []string{hostAddr, "[" + hostAddr6 + "]"} {
		for place, in := range map[string]string{"lan": lan, "host": ""} {
			timeout := "30" // also for "maybe"
			if byFamily[i][place] == "no" {
				timeout = "1"
			}
			truth := "yes"
			if h.Command(h.Context(), "sh", "-ec", in+" timeout "+timeout+" "+h.dir+"/program ask tcp "+addr+":"+
				port).Run() != nil {
				truth = "no"
			}
			if byFamily[i][place] != truth {
				h.Errorf("%s from the %s: reported %s, but in fact %s:\n%s", addr, place, byFamily[i][place], truth,
					h.sh(h.dir+"/fairlead ports "+port))
			}
		}
	}
}

// awaitNoRules waits until Docker's firewall contains no rules of Fairlead, and fails the test if they
// stay.
func (h *host) awaitNoRules() {
	h.Helper()
	h.sh("i=0; while { iptables -S; ip6tables -S; } | grep -qi fairlead; do i=$((i+1)); [ $i -lt 300 ] || exit 1; sleep 0.1; done")
}
