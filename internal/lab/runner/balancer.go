package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// virtual is the address of the rig's virtual services; the client's route to it
// is via the server host.
var virtual = netip.MustParseAddr("192.0.2.80")

// services returns the path's services: one per protocol, with the workload as
// real server, and others that get no requests.
func services(p suite.Path) []model.VirtualService {
	var all []model.VirtualService
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		all = append(all, model.VirtualService{
			Name: string(proto), Addresses: []netip.Addr{virtual}, Ports: []model.PortRange{{First: LoadPort, Last: LastPort}}, Proto: proto, Plane: p.Plane,
			Reals: []model.RealServer{{Address: workload, Weight: 1, Endpoint: web}},
		})
	}
	for i := range p.Others {
		v := model.VirtualService{Name: fmt.Sprintf("other-%d", i), Addresses: []netip.Addr{virtual}, Ports: []model.PortRange{model.Port(uint16(10_000 + i))}, Proto: model.TCP, Plane: p.Plane}
		for n := range byte(10) {
			v.Reals = append(v.Reals, model.RealServer{Address: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), n + 1}), Port: 80, Weight: 1})
		}
		all = append(all, v)
	}
	return all
}

// startHAProxy starts HAProxy on the server host in TCP mode, with one worker per
// CPU as by default, and the workload as its only server.
func startHAProxy(ctx context.Context, r *rig) (*foreign, error) {
	said := &waiter{}
	p, err := haproxy(ctx, haproxyConfig(), said, r.place(r.world.Server(), proxyGroup))
	if err != nil {
		return &foreign{}, err
	}
	f := &foreign{processes: []*child.Process{p}}
	if !await(ctx, p, func() bool { return listens(p.Cmd.Process.Pid, LastPort) }) {
		return f, errors.Join(fmt.Errorf("start haproxy: it does not listen: %s", said.text()), ctx.Err(), f.close())
	}
	return f, nil
}

// haproxy starts HAProxy in the foreground with a configuration. In it, the
// further files are descriptors from 4 on.
func haproxy(ctx context.Context, text string, said io.Writer, at child.Place, further ...*os.File) (*child.Process, error) {
	path, err := lookPath("haproxy")
	if err != nil {
		return nil, err
	}
	config, err := inMemory(text)
	if err != nil {
		return nil, err
	}
	defer config.Close()
	cmd := exec.Command(path, "-db", "-f", "/proc/self/fd/3")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = said, said, append([]*os.File{config}, further...)
	return child.Start(ctx, cmd, at)
}

// haproxyConfig makes HAProxy listen on every port and connect to the same port of
// the workload. Idle connections of a long run are not closed. The options are
// favourable for HAProxy: no separate acknowledgement if data follows, accept
// after the client has sent data, as all clients here do first, long streams
// spliced; and no log, as by default.
func haproxyConfig() string {
	var b strings.Builder
	b.WriteString("defaults\n mode tcp\n option tcp-smart-accept\n option tcp-smart-connect\n option splice-auto\n timeout connect 2s\n timeout client 10m\n timeout server 10m\n")
	for port := LoadPort; port <= LastPort; port++ {
		fmt.Fprintf(&b, "listen port-%d\n bind %s:%d defer-accept\n server workload %s:%d\n", port, topology.ServerAddr4, port, workload, port)
	}
	return b.String()
}
