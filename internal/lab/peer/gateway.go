package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
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

// bothFile is the file in a gateway's /mnt that has the chain of the certificate and the key.
const bothFile = "both.pem"

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
	files[program.ChainFile], files[program.KeyFile] = string(cert.Chain), string(cert.Key)
	files[bothFile] = files[program.ChainFile] + files[program.KeyFile]
	if args[0], err = program.FindGateway(args[0]); err != nil {
		return err
	}
	said := &program.Output{}
	p, err := program.Private{Args: args, Files: files, Environment: g.environment, Said: said}.Start(ctx,
		r.Place(r.World.Server(), rig.ProxyGroup))
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
	return program.Question{At: g.Dial(result.Remote, rig.LoadPort), Host: host, Path: "/",
		Limit: proofPatience}.Ask(r.World.DoServer)
}
