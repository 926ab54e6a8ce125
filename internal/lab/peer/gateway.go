package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/certificate"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// gateway forwards requests over HTTP to a sandbox of Fairlead's engine. The program
// runs on the server host, where it listens at the wire's address: on LoadPort without
// TLS, on TLSPort with TLS, and on WebPort and SecureWebPort for the web server of external
// tools. Its files are in a private /mnt.
type gateway struct {
	*rig.Engine
	needs []rig.Program
	// command returns the program with its arguments, and its configuration files.
	command func(suite.Path) (args []string, files map[string]string)
	// environment has further variables.
	environment []string
	process     *child.Process
}

// The files of the certificate in a gateway's /mnt: the chain, the key, and both.
const (
	chainFile = "chain.pem"
	keyFile   = "key.pem"
	bothFile  = "both.pem"
)

// gatewayAddresses are where a gateway listens and what it forwards to. The fields
// with TLS, Web and SecureWeb are those of the ports of these names.
type gatewayAddresses struct {
	plain, tls, web, secureWeb netip.AddrPort
	// upstream is the server's address, upstreamWeb that of the tools' server.
	upstream, upstreamWeb netip.AddrPort
}

// addressesOf returns the addresses of a path's gateway.
func addressesOf(p suite.Path) gatewayAddresses {
	at := rig.AddressesOf(p.Family)
	return gatewayAddresses{
		plain: netip.AddrPortFrom(at.Server, rig.LoadPort), tls: netip.AddrPortFrom(at.Server, rig.TLSPort),
		web: netip.AddrPortFrom(at.Server, rig.WebPort), secureWeb: netip.AddrPortFrom(at.Server, rig.SecureWebPort),
		upstream:    netip.AddrPortFrom(at.Workload, rig.LoadPort),
		upstreamWeb: netip.AddrPortFrom(at.Workload, rig.WebPort),
	}
}

// ownFiles runs a program with a private /mnt, into which it first copies the files
// that $1 names from the descriptors from 3 on. Everything is gone when it ends.
const ownFiles = `mount -t tmpfs none /mnt; fd=3
for name in $1; do cat /proc/self/fd/$fd > /mnt/$name; fd=$((fd+1)); done
shift; cd /mnt; exec "$@"`

// Needs implements rig.Maker.
func (g *gateway) Needs() rig.Needs {
	needs := g.Engine.Needs()
	needs.Programs = append([]rig.Program{unshareCommand}, g.needs...)
	return needs
}

// Dial implements rig.Maker: clients dial the gateway, on the server host.
func (g *gateway) Dial(_ result.Client, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(g.Addresses().Server, port)
}

// Proof implements rig.Maker. Of a tool's requests only the CPU time of the gateway is
// known.
func (g *gateway) Proof(w rig.Window, _ *result.Proof) *result.Proof {
	if w.Requests == 0 {
		return rig.CPUProof(g.Path.Peer.Name, w.Ledger.Proxy)
	}
	return rig.GatewayProof(w)
}

// Start implements rig.Maker.
func (g *gateway) Start(ctx context.Context, r *rig.Rig) error {
	if err := g.Engine.Start(ctx, r); err != nil {
		return err
	}
	cert, err := certificate.New(load.Host)
	if err != nil {
		return err
	}
	args, files := g.command(g.Path)
	files[chainFile], files[keyFile] = string(cert.Chain), string(cert.Key)
	files[bothFile] = files[chainFile] + files[keyFile]
	if args[0], err = program.FindGateway(args[0]); err != nil {
		return err
	}
	said := &program.Output{}
	p, err := g.run(ctx, r, said, args, files)
	if err != nil {
		return err
	}
	r.Keep(p)
	g.process = p
	if err := g.await(ctx, r, p); err != nil {
		return fmt.Errorf("start %s: %w: %s", g.Path.Peer.Name, err, said.Line())
	}
	return nil
}

// run starts the program with its files.
func (g *gateway) run(
	ctx context.Context, r *rig.Rig, said *program.Output, args []string, files map[string]string,
) (*child.Process, error) {
	names := slices.Sorted(maps.Keys(files))
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", ownFiles, "sh", strings.Join(names, " ")},
		args...)...)
	for _, name := range names {
		f, err := program.InMemory(files[name])
		if err != nil {
			return nil, err
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.Env = append(os.Environ(), g.environment...)
	cmd.Stdout, cmd.Stderr = said, said
	at := r.World.Server()
	at.Contained = true // so that its children end with it
	return child.Start(ctx, cmd, r.Place(at, rig.ProxyGroup))
}

// startLimit is how long a gateway may take to start. With 10,000 routers some take
// many seconds.
const startLimit = 2 * time.Minute

// await waits until the gateway listens on its ports and knows the route. The server
// does not run yet, so the answer is an error of the gateway.
func (g *gateway) await(ctx context.Context, r *rig.Rig, p *child.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var failed error
	known := func() bool {
		ports := []int{rig.LoadPort, rig.TLSPort, rig.WebPort, rig.SecureWebPort}
		if !program.Listens(p.Cmd.Process.Pid, ports...) {
			failed = fmt.Errorf("it does not listen on all of the ports %d", ports)
			return false
		}
		failed = g.knows(r)
		return failed == nil
	}
	if !program.Await(ctx, p, known) {
		return errors.Join(failed, ctx.Err())
	}
	return nil
}

// knows returns an error if the gateway does not know the route.
func (g *gateway) knows(r *rig.Rig) error {
	status, err := g.ask(r, load.Host)
	if err == nil && status < http.StatusInternalServerError {
		err = fmt.Errorf("it does not forward to the server: its answer is %d", status)
	}
	return err
}

// ask sends a request for a host, from the server host, and returns the status of the
// answer.
func (g *gateway) ask(r *rig.Rig, host string) (status int, err error) {
	var conn net.Conn
	err = r.World.DoServer(func() (err error) {
		conn, err = net.DialTimeout("tcp", g.Dial(result.Remote, rig.LoadPort).String(), proofPatience)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(proofPatience)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
