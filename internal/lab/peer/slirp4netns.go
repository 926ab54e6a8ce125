package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"

	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// slirpSocket is slirp4netns's API socket.
const slirpSocket = "/tmp/slirp4netns.sock"

// slirp4netns serves the sandbox's tap device with slirp4netns.
type slirp4netns struct{ userMode }

func newSlirp4netns(p suite.Path) rig.Maker { return &slirp4netns{userMode{rig.Base{Path: p}}} }

// Needs implements rig.Maker.
func (*slirp4netns) Needs() rig.Needs {
	return rig.Needs{Programs: []rig.Program{{Name: "slirp4netns", Package: "slirp4netns"}, unshareCommand}}
}

// Start implements rig.Maker. It starts slirp4netns on the server host for the
// workload's sandbox, waits until it is ready and makes it forward the ports.
func (*slirp4netns) Start(ctx context.Context, r *rig.Rig) error {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	said := &program.Output{}
	p, err := startUserMode(ctx, r, said, []*os.File{theirs}, "slirp4netns",
		"--configure", "--mtu="+tapMTU, "--disable-dns",
		"--ready-fd=3", "--api-socket="+slirpSocket, "--netns-type=path", boundBox, "eth0")
	theirs.Close()
	if err != nil {
		return err
	}
	r.Keep(p)
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		_ = p.Kill() // its output is complete only after it has ended
		return fmt.Errorf("start slirp4netns: it ended: %s", said.Line())
	}
	for port := rig.LoadPort; port <= rig.LastPort; port++ {
		for _, proto := range []string{"tcp", "udp"} {
			if err := slirpForward(ctx, p.Cmd.Process.Pid, proto, port); err != nil {
				return fmt.Errorf("make slirp4netns forward %d/%s: %w", port, proto, err)
			}
		}
	}
	return nil
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
