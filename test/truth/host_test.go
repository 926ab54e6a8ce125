package truth

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
)

// topology is a host with a LAN (eth0), a bridge (br0) with the sandboxes a and b, and the
// sandbox c behind the veth link vc. Each has IPv4 and IPv6, and routes to the others.
//
//	lan eth0 ── eth0 host ┬ br0 ┬ pa ── eth0 a
//	                      │     └ pb ── eth0 b
//	                      └ vc ── eth0 c
const topology = `set -e
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
for n in "$a" "$b" "$c" "$lan"; do nsenter --net="$n" sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0; done
ip -batch - <<E
link set lo up
link add br0 type bridge
addr add 10.77.0.1/24 dev br0
addr add fd77::1/64 dev br0 nodad
link set br0 up
link add pa type veth peer name eth0 netns $a
link add pb type veth peer name eth0 netns $b
link add vc type veth peer name eth0 netns $c
link add eth0 type veth peer name eth0 netns $lan
link set pa master br0 up
link set pb master br0 up
addr add 10.78.0.1/30 dev vc
addr add fd78::1/64 dev vc nodad
link set vc up
addr add 198.18.0.1/24 dev eth0
addr add fd18::1/64 dev eth0 nodad
link set eth0 up
E
join() {
	nsenter --net="$1" ip -batch - <<E
link set lo up
addr add $2 dev eth0
addr add $3 dev eth0 nodad
link set eth0 up
route add $4 via $5
route add $6 via $7
E
}
join "$a" 10.77.0.2/24 fd77::2/64 default 10.77.0.1 default fd77::1
join "$b" 10.77.0.3/24 fd77::3/64 default 10.77.0.1 default fd77::1
join "$c" 10.78.0.2/30 fd78::2/64 default 10.78.0.1 default fd78::1
join "$lan" 198.18.0.7/24 fd18::7/64 10.76.0.0/14 198.18.0.1 fd70::/12 fd18::1
`

// functions are what commands use: a, b, c and lan run a command in their place, and mac
// prints the hardware address in the output of a command.
const functions = `mac() { "$@" | sed -n 's/.*link.ether \([^ ]*\).*/\1/p'; }
a() { nsenter --net="$a" "$@"; }
b() { nsenter --net="$b" "$@"; }
c() { nsenter --net="$c" "$@"; }
lan() { nsenter --net="$lan" "$@"; }
`

// addresses are those of each place, of both families.
var addresses = map[string][2]string{"host": {"198.18.0.1", "fd18::1"}, "a": {"10.77.0.2", "fd77::2"},
	"b": {"10.77.0.3", "fd77::3"}, "c": {"10.78.0.2", "fd78::2"}, "lan": {"198.18.0.7", "fd18::7"}}

// gateways are the host's addresses that the clients of each place dial.
var gateways = map[string][2]string{"a": {"10.77.0.1", "fd77::1"}, "b": {"10.77.0.1", "fd77::1"},
	"c": {"10.78.0.1", "fd78::1"}, "lan": addresses["host"], "host": addresses["host"]}

// Host is a host with its neighbours.
type Host struct {
	// Kernel is the host's kernel.
	Kernel *kernel.Host
	// Places are the namespaces: host, lan, and the sandboxes a, b and c.
	Places map[string]*netns.Namespace
	// Dropping are cgroups to which the test attaches programs that drop all packets to their
	// sockets: the parents of those of servers with the option cgroup=drop.
	Dropping []string
	// Refused are the commands that the host refused.
	Refused []string
	env     []string
}

// Build makes a host that ends with the test, and runs the commands on it. A command that
// the host refuses has no effect. The test fails if a command ends the shell.
func Build(t testing.TB, commands []string) *Host {
	t.Helper()
	h := &Host{Places: map[string]*netns.Namespace{}, env: os.Environ()}
	for name := range addresses {
		ns := kerneltest.Netns(t)
		h.Places[name] = ns
		h.env = append(h.env, fmt.Sprintf("%s=/proc/%d/fd/%d", name, os.Getpid(), ns.File().Fd()))
	}
	if out, err := h.run(topology); err != nil {
		t.Fatalf("build the host: %v\n%s", err, out)
	}
	for _, place := range []string{"host", "a", "b", "c", "lan"} {
		for _, proto := range []string{"tcp", "udp"} {
			listen(t, h, "listen "+place+" "+proto+" [::]:80")
		}
	}
	var script strings.Builder
	script.WriteString(functions)
	for i, c := range commands {
		if strings.HasPrefix(c, "listen ") {
			listen(t, h, c)
			continue
		}
		fmt.Fprintf(&script, "{ %s\n} >/dev/null; [ $? = 0 ] || echo refused %d\n", c, i)
	}
	script.WriteString("true\n")
	out, err := h.run(script.String())
	if err != nil {
		t.Fatalf("run the commands: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		var i int
		if n, _ := fmt.Sscanf(line, "refused %d", &i); n == 1 {
			h.Refused = append(h.Refused, commands[i])
		}
	}
	if h.Kernel, err = kernel.Open(h.Places["host"].Path(), kernel.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Kernel.Close() })
	return h
}

// run runs a script of bash on the host.
func (h *Host) run(script string) (out []byte, err error) {
	err = h.Places["host"].Do(func() (err error) {
		cmd := exec.Command("bash", "-c", script)
		cmd.Env = h.env
		out, err = cmd.CombinedOutput()
		return err
	})
	return out, err
}

// World returns what Fairlead reads of the host. The caller closes it.
func (h *Host) World() (*hostview.World, error) {
	opt := hostview.Options{Sandboxes: map[string]string{}}
	for _, name := range []string{"a", "b", "c"} {
		opt.Sandboxes[name] = h.Places[name].Path()
	}
	return hostview.New(h.Kernel, opt)
}
