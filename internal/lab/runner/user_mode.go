package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/topology"
)

// tapMTU is the MTU in bytes of a tap device whose program terminates every TCP
// connection: pasta's default, and what Podman sets for slirp4netns. It does not
// depend on the wire's.
const tapMTU = "65520"

// ownTmp runs a program with a private /tmp, which is removed when it ends. The
// workload's sandbox is mounted there as boundBox, because a program that drops
// its privileges at once may not open this process's descriptors.
const ownTmp = `mount -t tmpfs none /tmp; touch ` + boundBox + `; mount --bind "$1" ` + boundBox + `; shift; exec "$@"`

const (
	boundBox = "/tmp/sandbox"
	// slirpSocket is slirp4netns's API socket.
	slirpSocket = "/tmp/slirp4netns.sock"
)

// startUsermode starts a program on the server host for the workload's sandbox.
// Its output goes to said; the end of a pipe is its descriptor 3.
func startUsermode(ctx context.Context, r *rig, said io.Writer, pipe []*os.File, program string, args ...string) (*child.Process, error) {
	box, err := r.world.Sandbox(web)
	if err != nil {
		return nil, err
	}
	path, err := lookPath(program)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", ownTmp, "sh", otherProcess(box), path}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = said, said, pipe
	return child.Start(ctx, cmd, r.place(r.world.Server(), proxyGroup))
}

// startSlirp4netns starts slirp4netns on the server host for the workload's
// sandbox, waits until it is ready and makes it forward the ports.
func startSlirp4netns(ctx context.Context, r *rig) (*foreign, error) {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	said := &waiter{}
	p, err := startUsermode(ctx, r, said, []*os.File{theirs}, "slirp4netns", "--configure", "--mtu="+tapMTU, "--disable-dns",
		"--ready-fd=3", "--api-socket="+slirpSocket, "--netns-type=path", boundBox, "eth0")
	theirs.Close()
	if err != nil {
		return nil, err
	}
	f := &foreign{processes: []*child.Process{p}}
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		_ = p.Kill() // its output is complete only after it has ended
		return f, fmt.Errorf("start slirp4netns: it ended: %s", said.text())
	}
	for port := LoadPort; port <= LastPort; port++ {
		for _, proto := range []string{"tcp", "udp"} {
			if err := slirpForward(ctx, p.Cmd.Process.Pid, proto, port); err != nil {
				return f, fmt.Errorf("make slirp4netns forward %d/%s: %w", port, proto, err)
			}
		}
	}
	return f, nil
}

// slirpForward requests the forwarding of one port (slirp4netns(1), API SOCKET).
func slirpForward(ctx context.Context, pid int, proto string, port int) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/%d/root%s", pid, slirpSocket))
	if err != nil {
		return err
	}
	defer conn.Close()
	request := map[string]any{"execute": "add_hostfwd", "arguments": map[string]any{
		"proto": proto, "host_addr": "0.0.0.0", "host_port": port, "guest_addr": "10.0.2.100", "guest_port": port}}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return err
	}
	var reply struct{ Error json.RawMessage }
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return err
	}
	if reply.Error != nil {
		return fmt.Errorf("it answered %s", reply.Error)
	}
	return nil
}

// startPasta starts pasta on the server host for the workload's sandbox, and
// waits until it forwards. Pasta copies the addresses of the link with the
// default route, so there must be one. It must not treat the gateway's address as
// the host itself, because that address is the client's.
func startPasta(ctx context.Context, r *rig) (*foreign, error) {
	if _, err := shell(r.world.DoServer, fmt.Sprintf("ip route add default via %s", topology.ClientAddr4)); err != nil {
		return nil, err
	}
	ports := fmt.Sprintf("%d-%d", LoadPort, LastPort)
	said := &waiter{}
	p, err := startUsermode(ctx, r, said, nil, "pasta", "--foreground", "--quiet", "--ipv4-only", "--config-net", "--no-map-gw",
		"--ns-ifname", "eth0", "--mtu", tapMTU, "--tcp-ports", ports, "--udp-ports", ports, "--tcp-ns", "none", "--udp-ns", "none",
		"--runas", "0", "--netns", boundBox)
	if err != nil {
		return nil, err
	}
	f := &foreign{processes: []*child.Process{p}}
	// Pasta accepts connections at once, but loses them until the sandbox has sent
	// a packet, from which pasta learns its hardware address.
	if !await(ctx, p, func() bool { return listens(p.Cmd.Process.Pid, LoadPort) && spoken(r.world) }) {
		_ = p.Kill() // its output is complete only after it has ended
		return f, errors.Join(fmt.Errorf("start pasta: it ended: %s", said.text()), ctx.Err())
	}
	return f, nil
}

// spoken makes the workload's sandbox send a datagram to its gateway, and reads
// from proc_pid_net(5) whether the gateway has answered ARP.
func spoken(w *topology.World) bool {
	const known = "0x2"
	answered := false
	err := w.DoSandbox(web, func() error {
		gateway := topology.ClientAddr4.String()
		conn, err := net.Dial("udp4", net.JoinHostPort(gateway, "9"))
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("here")); err != nil {
			return err
		}
		table, err := os.ReadFile("/proc/thread-self/net/arp")
		for line := range strings.Lines(string(table)) {
			fields := strings.Fields(line)
			answered = answered || len(fields) > 2 && fields[0] == gateway && fields[2] == known
		}
		return err
	})
	return err == nil && answered
}
