package peer

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"text/template"
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
	Plain, TLS, Web, SecureWeb netip.AddrPort
	// Upstream is the server's address, UpstreamWeb that of the tools' server.
	Upstream, UpstreamWeb netip.AddrPort
}

// addressesOf returns the addresses of a path's gateway.
func addressesOf(p suite.Path) gatewayAddresses {
	at := rig.AddressesOf(p.Family)
	return gatewayAddresses{
		Plain: netip.AddrPortFrom(at.Server, rig.LoadPort), TLS: netip.AddrPortFrom(at.Server, rig.TLSPort),
		Web: netip.AddrPortFrom(at.Server, rig.WebPort), SecureWeb: netip.AddrPortFrom(at.Server, rig.SecureWebPort),
		Upstream:    netip.AddrPortFrom(at.Workload, rig.LoadPort),
		UpstreamWeb: netip.AddrPortFrom(at.Workload, rig.WebPort),
	}
}

// The configurations of the gateways, in the languages of their programs.
//
//go:embed config
var configs embed.FS

// configured returns the command of a gateway that has a file of config as its configuration.
func configured(file string, args ...string) func(suite.Path) ([]string, map[string]string) {
	return func(p suite.Path) ([]string, map[string]string) {
		var text strings.Builder
		// The files are part of the program, so neither reading nor executing them fails.
		_ = template.Must(template.ParseFS(configs, "config/"+file)).Execute(&text, struct {
			gatewayAddresses
			Host, Chain, Key, Both string
		}{addressesOf(p), load.Host, program.ChainFile, program.KeyFile, bothFile})
		return slices.Clone(args), map[string]string{file: text.String()}
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
