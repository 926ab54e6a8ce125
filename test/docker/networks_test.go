package docker_test

import "strings"

// connects attaches containers to several networks, with requested addresses, beside networks of
// Docker's own drivers.
func (h *host) connects() {
	before := h.inventory()
	h.docker("network", "create", "-d", "fairlead", "--subnet", "172.30.0.0/24", "--ipv6", "--subnet", "fd00:30::/64",
		"-o", "com.docker.network.driver.mtu=1400", "-o", "com.docker.network.container_iface_prefix=net", "net")
	h.docker("network", "create", "-d", "fairlead", "--ipam-driver", "fairlead", "--subnet", "172.30.1.0/24",
		"--ip-range", "172.30.1.64/26", "-o", "driver=routed", "back")
	h.docker("network", "create", "-d", "fairlead", "--internal", "--subnet", "172.30.2.0/24", "closed")
	h.docker("network", "create", "--subnet", "172.31.0.0/24", "docker")
	h.fails("overlaps 192.0.2.0/24 on ", "network", "create", "-d", "fairlead", "--subnet", "192.0.2.128/25", "red")
	h.docker("network", "create", "-d", "fairlead", "-o", "allow-overlap=true", "--subnet", "192.0.2.128/25", "red")
	h.docker("network", "rm", "red")
	h.fails("it does not exist: want one of", "network", "create", "-d", "fairlead", "-o", "colour=red", "red")
	h.fails("--network host", "network", "create", "-d", "fairlead", "-o", "driver=host", "red")
	h.fails("of another network", "network", "create", "-d", "fairlead", "--ipam-driver", "fairlead", "--subnet",
		"172.30.1.128/25", "red")

	h.serves("web", "--ip", "172.30.0.77", "--ip6", "fd00:30::77", "-p", "8080:80")
	h.docker("network", "connect", "--ip", "172.30.1.9", "back", "web")
	h.docker("network", "connect", "closed", "web")
	h.docker("network", "connect", "docker", "web")
	inside := h.sh(`nsenter --net=/proc/` + h.docker("inspect", "-f", "{{.State.Pid}}", "web") +
		`/ns/net sh -c 'ip addr; ip route; ip -6 route'`)
	for _, want := range []string{"172.30.0.77/24", "fd00:30::77/64", "mtu 1400", "net0@", "172.30.1.9/24",
		"172.31.0.2/24",
		"default via 172.3", "default via fd00:30::1"} {
		if !strings.Contains(inside, want) {
			h.Errorf("the container lacks %s:\n%s", want, inside)
		}
	}
	h.reached()
	h.docker("run", "-d", "--name", "peer", "--network", "back", "program", "serve", "tcp:80")
	h.docker("exec", "peer", "/program", "ask", "tcp", "web:80")
	h.docker("run", "-d", "--name", "hermit", "--network", "closed", "program", "serve", "tcp:80")
	h.docker("exec", "hermit", "/program", "ask", "tcp", "web:80")
	if out := h.sh(`nsenter --net=/proc/` + h.docker("inspect", "-f", "{{.State.Pid}}", "hermit") +
		`/ns/net ip route`); strings.Contains(out, "default") {
		h.Errorf("an internal network reaches the outside: %s", out)
	}
	if out := h.sh("ip -o link"); strings.Contains(out, "docker_gwbridge") {
		h.Error("Docker has created its own gateway network")
	}
	for range 2 {
		h.docker("network", "disconnect", "back", "web")
		h.docker("network", "connect", "back", "web")
	}
	h.docker("exec", "peer", "/program", "ask", "tcp", "web:80")
	h.docker("restart", "-t", "1", "web")
	h.reached()
	h.docker("exec", "hermit", "/program", "ask", "tcp", "web:80")

	h.sh(`for l in $(ip -o link | sed -n 's/^[0-9]*: \(fv[-_][^@:]*\).*/\1/p'); do ip link del $l; done`)
	h.reached() // although the links were deleted
	h.docker("exec", "hermit", "/program", "ask", "tcp", "web:80")
	h.docker("network", "disconnect", "back", "web")
	h.docker("rm", "-f", "web", "peer", "hermit")
	h.docker("network", "rm", "net", "back", "closed", "docker")
	h.empty()
	h.unchanged(before)
}

// passesDevice moves a device into containers and checks that it returns to the host.
func (h *host) passesDevice() {
	h.sh("ip link add nic0 type veth peer name far0 netns lan; ip -n lan addr add 198.51.100.1/24 dev far0; ip -n lan link set far0 up")
	before := h.inventory()
	h.docker("network", "create", "-d", "fairlead", "-o", "driver=device", "-o", "parent=nic0", "--subnet",
		"198.51.100.0/24", "--gateway", "198.51.100.1", "net")
	for range 2 {
		h.docker("run", "-d", "--name", "web", "--network", "net", "program", "serve", "tcp:80")
		if from := h.asks(lan, "tcp", "198.51.100.2:80"); from != "198.51.100.1" {
			h.Errorf("the server sees the LAN as %s", from)
		}
		h.docker("exec", "web", "/program", "ask", "tcp", "198.51.100.2:80")
		h.docker("rm", "-f", "web")
		h.empty()
	}
	h.docker("network", "rm", "net")
	h.unchanged(before)
	h.sh("ip link del nic0")
}
