package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// foreign is a path's other maker: real docker-proxy processes, or a set-up
// by hand, which leaves no process.
type foreign struct{ processes []*child.Process }

// foreignTools names the programs that a peer needs.
var foreignTools = map[suite.Peer][]string{
	suite.DockerProxy: {"docker-proxy"},
	suite.HandDNAT:    {"ip", "nft"},
}

// Unavailable says why a path cannot be built here: its peer's programs are
// not installed, or the kernel lacks a feature. Empty means that it can be
// tried.
func Unavailable(p suite.Path, facts plan.Facts) string {
	for _, tool := range foreignTools[p.Peer] {
		if _, err := lookPath(tool); err != nil {
			return tool + " is not installed (Debian: " + debianPackage[tool] + ")"
		}
	}
	var needs []plan.Feature
	if d, ok := paths.Driver(p.Driver); ok {
		needs = append(needs, d.Needs()...)
	}
	if w, ok := paths.Way(p.Via); ok {
		needs = append(needs, w.Needs()...)
	}
	return paths.Missing(facts, needs)
}

// debianPackage names the package of each peer's program.
var debianPackage = map[string]string{"docker-proxy": "docker.io", "ip": "iproute2", "nft": "nftables"}

// lookPath finds a program also where distributions hide docker-proxy, and
// where a plain user's PATH does not lead.
func lookPath(tool string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/", "/usr/libexec/docker/", "/usr/local/bin/"} {
		if path, err := exec.LookPath(dir + tool); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func startForeign(ctx context.Context, r *rig) (*foreign, error) {
	if r.path.Peer == suite.HandDNAT {
		return &foreign{}, handDNAT(r)
	}
	f := &foreign{}
	for port := LoadPort; port <= LastPort; port++ {
		for _, proto := range []string{"tcp", "udp"} {
			p, err := dockerProxy(ctx, r, proto, port)
			if err != nil {
				return f, errors.Join(fmt.Errorf("start docker-proxy: %w", err), f.close())
			}
			f.processes = append(f.processes, p)
		}
	}
	return f, nil
}

// dockerProxy starts one docker-proxy as dockerd does, and waits until it
// says on descriptor 3 that it listens.
func dockerProxy(ctx context.Context, r *rig, proto string, port int) (*child.Process, error) {
	path, err := lookPath("docker-proxy")
	if err != nil {
		return nil, err
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd := exec.Command(path, "-proto", proto, "-host-ip", "0.0.0.0", "-host-port", fmt.Sprint(port),
		"-container-ip", workload.String(), "-container-port", fmt.Sprint(port))
	cmd.ExtraFiles = []*os.File{theirs}
	p, err := child.Start(ctx, cmd, r.place(r.world.Server(), proxyGroup))
	theirs.Close()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(ready).ReadString('\n')
	if strings.TrimSpace(line) != "0" {
		return nil, errors.Join(fmt.Errorf("it said %q", line), err, p.Kill())
	}
	return p, nil
}

// handDNAT types what an administrator would: a bridge, a veth pair, one
// DNAT rule for each protocol.
func handDNAT(r *rig) error {
	box, err := r.world.Sandbox(web)
	if err != nil {
		return err
	}
	// Other processes know our descriptors under our own pid.
	box = strings.Replace(box, "/proc/self", fmt.Sprintf("/proc/%d", os.Getpid()), 1)
	script := fmt.Sprintf(`set -e
ip link add br0 type bridge
ip addr add 172.30.0.1/24 dev br0
ip link set br0 up
ip link add %[4]s type veth peer name eth0 netns %[1]s
ip link set %[4]s master br0 up
nsenter --net=%[1]s sh -e -c 'ip addr add %[2]s/24 dev eth0; ip link set eth0 up; ip route add default via 172.30.0.1'
echo 1 > /proc/sys/net/ipv4/ip_forward
nft -f - <<EOF
table ip byhand {
	chain pre {
		type nat hook prerouting priority dstnat;
		ip daddr %[3]s tcp dport %[5]d-%[6]d dnat to %[2]s
		ip daddr %[3]s udp dport %[5]d-%[6]d dnat to %[2]s
	}
}
EOF
`, box, workload, topology.ServerAddr4, handLink, LoadPort, LastPort)
	return r.world.DoServer(func() error {
		out, err := exec.Command("sh", "-c", script).CombinedOutput()
		if err != nil {
			return fmt.Errorf("set up by hand: %w: %s", err, out)
		}
		return nil
	})
}

// handLink is the host's end of the veth that is made by hand.
const handLink = "vweb"

func (f *foreign) pids() []int {
	var all []int
	for _, p := range f.processes {
		all = append(all, p.Cmd.Process.Pid)
	}
	return all
}

func (f *foreign) close() error {
	for _, p := range f.processes {
		_ = p.Kill() // its exit status says only that we killed it
	}
	return nil
}
