package e2e_test

import (
	"bufio"
	"os/exec"
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
	server := startDHCPServer(r)
	r.succeed("network", "create", "lan", "--driver", "macvlan", "--parent", "uplink")
	r.succeed("attach", "lan", "web", "--dhcp")
	server.logs("DHCPACK(router) 192.0.2.100")
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
	server.stop()
	server = startDHCPServer(r)
	r.succeed("ls")
	server.logs("DHCPACK(router) 192.0.2.100")
	r.succeed("detach", "web")
	server.logs("DHCPRELEASE(router) 192.0.2.100")
	server.stop()
	if left := r.read("leases"); len(left) > 0 {
		t.Errorf("the server still has leases:\n%s", left)
	}
}

// dhcpServer is dnsmasq in the namespace lan. Its clients renew their leases after 5 s.
type dhcpServer struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startDHCPServer(r *room) dhcpServer {
	r.t.Helper()
	cmd := r.command("ip", "netns", "exec", "lan", "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0",
		"--no-ping", "--interface=router", "--bind-interfaces", "--dhcp-sequential-ip",
		"--dhcp-leasefile="+r.file("leases"), "--dhcp-range=192.0.2.100,192.0.2.200,255.255.255.0,10m",
		"--dhcp-option=option:T1,5", "--dhcp-option=121,198.51.100.0/24,192.0.2.254,0.0.0.0/0,192.0.2.1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	s := dhcpServer{r.t, cmd, bufio.NewScanner(stderr)}
	s.logs("sockets bound exclusively")
	return s
}

// logs waits until the server writes a line with some words.
func (s dhcpServer) logs(words string) {
	s.t.Helper()
	for s.lines.Scan() {
		if strings.Contains(s.lines.Text(), words) {
			return
		}
	}
	s.t.Fatalf("the server never logs %q", words)
}

// stop ends the server and waits until its output has ended.
func (s dhcpServer) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	for s.lines.Scan() {
		continue
	}
	_ = s.cmd.Wait()
}
