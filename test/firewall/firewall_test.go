package firewall_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/netns"
	"fairlead/test/compiled"
)

// furnish creates a separate host with a LAN, two sandboxes and a Fairlead daemon. It uses a copy
// of the firewall's configuration. It is process 1 of a PID namespace.
const furnish = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
mkdir -p /run/etc/firewalld
cp -a /etc/ufw /run/etc/ufw
mount --bind /run/etc/ufw /etc/ufw
mount --bind /run/etc/firewalld /etc/firewalld
for box in lan shop second; do ip netns add $box; ip -n $box link set lo up; done
ip link set lo up
ip link add up0 type veth peer name eth0 netns lan
ip addr add 192.0.2.10/24 dev up0
ip addr add 2001:db8:9::10/64 dev up0 nodad
ip link set up0 up
ip -n lan addr add 192.0.2.1/24 dev eth0
ip -n lan addr add 2001:db8:9::1/64 dev eth0 nodad
ip -n lan link set eth0 up
ip route add default via 192.0.2.1
ip route add default via 2001:db8:9::1
for box in lan shop; do ip netns exec $box socat TCP6-LISTEN:80,ipv6-v6only=0,fork,reuseaddr EXEC:"echo hello" 3>&- & done
exec fairlead daemon --teardown --ready-fd 3
`

// firewalls are started with their default settings: they drop or reject incoming and forwarded
// packets.
var firewalls = []struct {
	name, start string
	// nat is true if the LAN still reaches ports published via nat: the firewall accepts packets
	// that NAT has translated.
	nat bool
	// open is the command that opens a port of the host itself.
	open string
}{
	{"ufw", "ufw --force reset && ufw --force enable", false, "ufw allow 81/tcp"},
	{"firewalld",
		"dbus-daemon --config-file=/usr/share/dbus-1/session.conf --address=unix:path=/run/bus --fork --nopidfile; " +
			"firewalld --nofork --nopid >/run/firewalld.log 2>&1 & until firewall-cmd --state 2>/dev/null; do sleep 0.1; done", true,
		"firewall-cmd -q --permanent --zone=public --add-port=81/tcp; firewall-cmd -q --reload"},
}

// host is a host behind a firewall.
type host struct {
	*testing.T
	pid  int
	path string
}

func start(t *testing.T, programs string) *host {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	h := &host{T: t, path: programs + ":" + os.Getenv("PATH")}
	cmd := exec.Command("sh", "-c", furnish)
	cmd.Env = []string{"PATH=" + h.path}
	ready, daemonsEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	defer daemonsEnd.Close()
	cmd.ExtraFiles = []*os.File{daemonsEnd}
	ctx, cancel := context.WithCancel(context.Background())
	process, err := child.Start(ctx, cmd, child.Place{Netns: ns.File(), Contained: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); <-process.Done() })
	h.pid = cmd.Process.Pid
	if err := ready.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatalf("wait for the daemon: %v", err)
	}
	return h
}

// command returns a command line that runs on the host.
func (h *host) command(line string) *exec.Cmd {
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(h.pid), "-n", "-m", "-p", "--", "sh", "-c", line)
	cmd.Env = []string{"PATH=" + h.path, "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/run/bus"}
	return cmd
}

// run runs a command line, which must succeed, and returns its output.
func (h *host) run(line string) string {
	h.Helper()
	out, err := h.command(line).CombinedOutput()
	if err != nil {
		h.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// passes fails the test unless a connection from a namespace succeeds or fails as wanted.
func (h *host) passes(want bool, from, to string) {
	h.Helper()
	timeout := map[bool]string{true: "30", false: "1"}[want]
	out, err := h.command("ip netns exec " + from + " socat -t 30 -T 30 - TCP:" + to + ",connect-timeout=" + timeout +
		" </dev/null").CombinedOutput()
	if got := err == nil && strings.Contains(string(out), "hello"); got != want {
		h.Errorf("%s reaches %s: %v, want %v: %s", from, to, got, want, out)
	}
}

// lan connects to a published port from the LAN, via IPv4 and IPv6.
func (h *host) lan(want bool, port int) {
	h.Helper()
	h.passes(want, "lan", fmt.Sprintf("192.0.2.10:%d", port))
	h.passes(want, "lan", fmt.Sprintf("[2001:db8:9::10]:%d", port))
}

// leaves connects from a sandbox to a host of the LAN, via IPv4 and IPv6.
func (h *host) leaves(want bool, sandbox string) {
	h.Helper()
	h.passes(want, sandbox, "192.0.2.1:80")
	h.passes(want, sandbox, "[2001:db8:9::1]:80")
}

// blocked returns the commands that doctor suggests against a firewall that does not forward.
func (h *host) blocked(firewall string) (commands []string) {
	h.Helper()
	out, _ := h.command("fairlead doctor -o json").Output() // it fails if there is a problem
	var found struct {
		Findings []struct{ Check, Seen, Fix string }
	}
	if err := json.Unmarshal(out, &found); err != nil {
		h.Fatalf("%v: %s", err, out)
	}
	for _, f := range found.Findings {
		if f.Check != "not-forwarded" {
			continue
		}
		if !strings.HasPrefix(f.Seen, firewall+": ") {
			h.Errorf("doctor does not name %s: %s", firewall, f.Seen)
		}
		commands = append(commands, f.Fix)
	}
	return commands
}

// TestFirewalls checks that with default settings, `network create` and `doctor` print the command
// that makes the packets pass.
func TestFirewalls(t *testing.T) {
	programs := t.TempDir()
	if err := compiled.Fairlead(filepath.Join(programs, "fairlead")); err != nil {
		t.Fatal(err)
	}
	for _, f := range firewalls {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, programs)
			const web = "fairlead network create web --subnet 172.30.0.0/24 --subnet fd00:30::/64"
			if said := h.run(web); said != "" {
				t.Errorf("without a firewall, network create prints %q", said)
			}
			h.run(f.start)
			if said := h.run(web); !strings.HasPrefix(said, "fairlead: "+f.name+
				" drops what the containers of network web send") || strings.Count(said, "\n") != 1 {
				t.Errorf("the hint is %q", said)
			}
			h.run("fairlead attach web shop")
			for port, via := range map[int]string{81: "proxy", 82: "nat", 83: "ebpf"} {
				h.run(fmt.Sprintf("fairlead publish shop %d:80 --via %s", port, via))
			}
			h.leaves(false, "shop")
			h.lan(false, 81)
			h.lan(f.nat, 82)
			h.lan(true, 83)

			commands := h.blocked(f.name)
			if len(commands) == 0 {
				t.Fatal("doctor finds nothing")
			}
			h.run(commands[0])
			h.leaves(true, "shop")
			h.lan(true, 82)
			h.lan(false, 81)
			h.run(f.open)
			h.lan(true, 81)
			// Ports that are not published stay closed.
			h.run("ip -n lan route add 172.30.0.0/24 via 192.0.2.10")
			h.passes(false, "lan", "172.30.0.2:80")
			if commands := h.blocked(f.name); len(commands) > 0 {
				t.Errorf("doctor still names %q", commands)
			}
			if said := h.run(web); said != "" {
				t.Errorf("the firewall lets the network's packets pass, but the hint is %q", said)
			}

			// The command of the hint works for another network, too.
			_, command,
				_ := strings.Cut(h.run("fairlead network create two --subnet 172.30.1.0/24 --subnet fd00:31::/64"),
				"run: ")
			h.run(command)
			h.run("fairlead attach two second")
			h.leaves(true, "second")
		})
	}
}
