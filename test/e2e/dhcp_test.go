package e2e_test

import (
	"bufio"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestDHCP attaches a sandbox to the host's own network, whose DHCP server assigns an address to
// it. Detaching releases the address.
func TestDHCP(t *testing.T) {
	r := newRoom(t)
	r.sh(`
ip netns add lan
ip link set router netns lan
ip -n lan address add 192.0.2.1/24 dev router
ip -n lan link set router up
ip netns add web`)
	server := r.command("ip", "netns", "exec", "lan", "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0",
		"--no-ping",
		"--interface=router", "--bind-interfaces", "--dhcp-sequential-ip", "--dhcp-leasefile="+r.file("leases"),
		"--dhcp-range=192.0.2.100,192.0.2.200,255.255.255.0,10m",
		"--dhcp-option=121,198.51.100.0/24,192.0.2.254,0.0.0.0/0,192.0.2.1")
	stderr, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	says := func(words string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), words) {
				return
			}
		}
		t.Fatalf("the server never logs %q", words)
	}
	says("sockets bound exclusively")

	r.succeed("network", "create", "lan", "--driver", "macvlan", "--parent", "uplink")
	r.succeed("attach", "lan", "web", "--dhcp")
	says("DHCPACK(router) 192.0.2.100")
	got := regexp.MustCompile(` +`).ReplaceAllString(r.succeed("inspect", "web"), " ")
	for _, line := range []string{
		`eth0 macvlan up 1500 \S+ 192\.0\.2\.100/24 .*`,
		`default 192\.0\.2\.1 eth0`,
		`198\.51\.100\.0/24 192\.0\.2\.254 eth0`,
		`web lan macvlan eth0 up`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + ` ?$`).MatchString(got) {
			t.Errorf("no line is like %s:\n%s", line, got)
		}
	}
	// The next daemon renews the leases of a daemon that was killed.
	r.until("the daemon is gone", func(all []descendant) bool {
		i := slices.IndexFunc(all, func(p descendant) bool { return strings.Contains(p.cmdline, "fairlead daemon") })
		return i < 0 || syscall.Kill(all[i].pid, syscall.SIGKILL) == syscall.ESRCH
	})
	r.succeed("ls")
	says("DHCPACK(router) 192.0.2.100")
	r.succeed("detach", "web")
	says("DHCPRELEASE(router) 192.0.2.100")
	_ = server.Process.Signal(syscall.SIGTERM)
	for lines.Scan() { // until the server's output ends
		continue
	}
	_ = server.Wait()
	if left := r.read("leases"); len(left) > 0 {
		t.Errorf("the server still has leases:\n%s", left)
	}
}
