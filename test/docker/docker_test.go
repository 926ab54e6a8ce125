// Package docker_test runs containers of real Docker engines on Fairlead's networks, with a daemon
// on the same host, as users run it.
package docker_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/promise"
	"fairlead/test/engines"
)

// networks lists the options of `docker network create` for each driver.
var networks = []struct {
	driver  model.Driver
	options string
}{
	{model.DriverBridge, "--subnet 172.30.0.0/24 --subnet fd00:30::/64"},
	{model.DriverRouted, "-o driver=routed --subnet 172.30.1.0/24 --subnet fd00:31::/64"},
	{model.DriverVXLAN, "-o vni=7 -o peers=192.0.2.10;192.0.2.1 --subnet 172.30.2.0/24 --subnet fd00:32::/64"},
	{model.DriverMacvlan,
		"-o parent=up0 --subnet 192.0.2.0/24 --gateway 192.0.2.1 --ip-range 192.0.2.128/25 --aux-address fairlead=192.0.2.100 --subnet 2001:db8:9::/64 --gateway 2001:db8:9::1"},
}

// TestEngines runs all tests of this package that share one host per engine.
func TestEngines(t *testing.T) {
	t.Parallel()
	dir := programs(t)
	for name, programs := range engines.All(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, dir, programs)
			for _, n := range networks {
				t.Run(string(n.driver), func(t *testing.T) { h.with(t).attaches(n.driver, n.options) })
			}
			t.Run("guide", func(t *testing.T) { h.with(t).guided() })
			t.Run("life", func(t *testing.T) { h.with(t).survives() })
			t.Run("ports", func(t *testing.T) { h.with(t).publishes() })
			t.Run("connect", func(t *testing.T) { h.with(t).connects() })
			t.Run("device", func(t *testing.T) { h.with(t).passesDevice() })
			t.Run("compose", func(t *testing.T) { h.with(t).composes() })
			t.Run("balance", func(t *testing.T) { h.with(t).balances() })
			t.Run("daemonless", func(t *testing.T) { h.with(t).daemonless() })
			t.Run("labels", func(t *testing.T) { h.with(t).labelled() })
		})
	}
}

// attaches reaches containers of a network via every publish mode.
func (h *host) attaches(driver model.Driver, options string) {
	before := h.inventory()
	h.docker(append([]string{"network", "create", "-d", "fairlead", "--ipv6", "net"}, strings.Fields(options)...)...)
	vias := publishing(driver)
	for i, via := range vias {
		h.docker("run", "-d", "--name", string(via), "--network", "name=net,driver-opt=via="+string(via),
			"-p", fmt.Sprintf("%d:80", 8000+i), "-p", fmt.Sprintf("%d:53/udp", 8000+i), "program", "serve", "udp:53",
			"tcp:80") // TCP is tested first: a container that answers TCP also answers UDP
	}
	for i, via := range vias {
		direction, _ := paths.Mode(via)
		promises := direction.Promises(driver)
		for _, network := range []string{"tcp", "udp"} {
			for _, family := range []struct{ host, lan string }{{hostAddr, lanAddr},
				{"[" + hostAddr6 + "]", lanAddr6}} {
				from := h.asks(lan, network, fmt.Sprintf("%s:%d", family.host, 8000+i))
				if kept := promises[promise.LANSource].Kept; from == family.lan != kept {
					h.Errorf("%s via %s: the server sees the LAN's %s as %s, lan-source is promised: %t", network, via,
						family.lan, from, kept)
				}
			}
			h.asks("", network, fmt.Sprintf("127.0.0.1:%d", 8000+i))
			h.asks("", network, fmt.Sprintf("[::1]:%d", 8000+i))
		}
	}
	h.docker("run", "-d", "--name", "client", "--network", "net", "program", "serve", "tcp:80")
	for i, via := range vias {
		h.docker("exec", "client", "/program", "ask", "tcp", string(via)+":80")
		h.docker("exec", "client", "/program", "ask", "udp", fmt.Sprintf("%s:%d", hostAddr, 8000+i))
	}
	for command, want := range map[string]string{"ls": "container:client", "network ls": " (net)"} {
		if out := h.sh(h.dir + "/fairlead " + command); !strings.Contains(out, want) {
			h.Errorf("fairlead %s does not name Docker's %s:\n%s", command, want, out)
		}
	}
	h.docker("rm", "-f", "client")
	for _, via := range vias {
		h.docker("rm", "-f", string(via))
	}
	h.docker("network", "rm", "net")
	h.unchanged(before)
}

// publishing returns the publish modes for containers on networks of a driver.
func publishing(driver model.Driver) []model.Via {
	var all []model.Via
	for _, direction := range paths.Modes() {
		if direction.Name() != model.ViaSocket && direction.Promises(driver) != nil {
			all = append(all, direction.Name())
		}
	}
	return all
}

// guided runs the commands of the guide. The test starts the daemon itself instead of systemd.
func (h *host) guided() {
	guide, err := os.ReadFile("../../docs/guide/docker.md")
	if err != nil {
		h.Fatal(err)
	}
	_, text, _ := strings.Cut(string(guide), "## Docker in three commands\n\n```text\n")
	text, _, _ = strings.Cut(text, "```")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 3 {
		h.Fatalf("want three commands, got %q", lines)
	}
	for _, line := range lines[1:] {
		words := strings.Fields(strings.Replace(line, "nginx", "--name web program serve tcp:80", 1))
		h.docker(words[1:]...)
	}
	if from := h.asks(lan, "tcp", hostAddr+":8080"); from != lanAddr {
		h.Errorf("the server sees the LAN as %s", from)
	}
	h.docker("rm", "-f", "web")
	h.docker("network", "rm", "web")
}
