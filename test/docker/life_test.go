package docker_test

import (
	"strconv"
	"strings"
	"syscall"
)

// survives checks that a container survives restarts of other programs, and that nothing of it is left
// after its end.
func (h *host) survives() {
	before := h.inventory()
	h.docker("network", "create", "-d", "fairlead", "--ipam-driver", "fairlead", "-o", "via=nat", "--ipv6", "net")
	run := func() {
		h.docker("run", "-d", "--name", "web", "--network", "net", "-p", "8080:80", "program", "serve", "tcp:80")
	}
	run()
	h.reached()

	h.kill()
	h.start()
	h.reached() // after the daemon was killed

	h.live(true)
	h.restart(syscall.SIGKILL)
	h.reached() // after dockerd was killed
	h.kill()
	h.restart(syscall.SIGTERM, h.start)
	h.reached()
	addr := h.docker("inspect", "-f", "{{.NetworkSettings.Networks.net.IPAddress}}", "web")
	h.docker("run", "-d", "--name", "other", "--network", "net", "program", "serve", "tcp:80")
	if other := h.docker("inspect", "-f", "{{.NetworkSettings.Networks.net.IPAddress}}", "other"); other == addr {
		h.Errorf("two containers have the address %s", addr)
	}
	h.docker("rm", "-f", "other")

	h.live(false)
	h.restart(syscall.SIGKILL)
	h.docker("rm", "-f", "web") // the engine has either ended or adopted it
	h.empty()
	run()
	h.reached()

	h.reboot()
	h.docker("start", "web")
	h.reached()
	h.docker("rm", "-f", "web")
	h.docker("network", "rm", "net")
	h.unchanged(before)
	h.empty()
}

// reached fails the test unless the container is reachable.
func (h *host) reached() {
	h.Helper()
	h.asks(lan, "tcp", "["+hostAddr6+"]:8080")
	if from := h.asks(lan, "tcp", hostAddr+":8080"); from != lanAddr {
		h.Errorf("the server sees the LAN as %s", from)
	}
	h.asks("", "tcp", "127.0.0.1:8080")
}

// empty fails the test if any attachment is left.
func (h *host) empty() {
	h.Helper()
	if out := h.sh(h.dir + "/fairlead ls -o json"); strings.Contains(out, "docker") {
		h.Errorf("attachments are left:\n%s", out)
	}
}

// live configures whether containers outlive dockerd.
func (h *host) live(restore bool) {
	h.Helper()
	value := strconv.FormatBool(restore)
	h.sh(`echo '{"live-restore": ` + value + `}' > /run/dockerd.json
kill -HUP $(cat /run/docker.pid)
loaded() { docker -H unix:///run/docker.sock info -f '{{.LiveRestoreEnabled}}' | grep -q ` + value + `; }
await loaded`)
}

// restart ends dockerd with a signal, runs the functions, and starts dockerd again.
func (h *host) restart(s syscall.Signal, between ...func()) {
	h.Helper()
	if err := h.Signal(s); err != nil {
		h.Fatal(err)
	}
	for _, do := range between {
		do()
	}
	if err := h.Restart(h.whole.Context()); err != nil {
		h.Fatal(err)
	}
}

// reboot kills all programs, and removes the state in the kernel and in /run.
func (h *host) reboot() {
	h.Helper()
	h.kill()
	if err := h.Signal(syscall.SIGKILL); err != nil {
		h.Fatal(err)
	}
	h.killAll("*/program | " + h.dir + "/fairlead")
	h.sh(`
nft delete table inet fairlead
for l in $(ip -o link | sed -n 's/^[0-9]*: \(f[a-z][-_][^:@]*\).*/\1/p'); do ip link del $l 2>/dev/null || true; done
rm -rf /run/fairlead /sys/fs/bpf/fairlead
echo 0 > /proc/sys/net/ipv6/conf/all/forwarding
`)
	h.start()
	if err := h.Restart(h.whole.Context()); err != nil {
		h.Fatal(err)
	}
}
