package site

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/topology/lan"
	"fairlead/internal/lab/website"
	"fairlead/internal/model"
)

// Node is a host with a web server and, if the site has one there, a gateway.
type Node struct {
	Name string
	Addr netip.Addr

	site *Site
	host *lan.Host
	// limited is the cgroup of the gateway, and served that of the web server, which
	// has no quota.
	limited, served *ledger.Limited
	server          *website.Server
	gateway         *child.Process
	// earlier is the number of requests that killed web servers had answered.
	earlier uint64
}

// acceptVirtual makes the host accept packets with the virtual address, as a user
// does with `forward: local`.
func (n *Node) acceptVirtual() error {
	_, err := n.host.Engine().Set(context.Background(), model.State{Services: []model.VirtualService{{Name: service,
		Addresses: []netip.Addr{n.site.virtual()}, Ports: []model.PortRange{model.Port(securePort)}, Proto: model.TCP,
		Forward: model.ForwardLocal}}})
	return err
}

// place is where processes of the node run that are in the cgroup.
func (n *Node) place(group *ledger.Limited) child.Place {
	at := n.host.Place()
	at.Cgroup = group.Dir
	return at
}

// used returns the CPU time of the node's processes, and for how long the quota has
// stopped the gateway, in seconds.
func (n *Node) used() (cpu, throttled float64, err error) {
	cpu, throttled, err = n.limited.Used()
	if err != nil {
		return 0, 0, err
	}
	served, _, err := n.served.Used()
	return cpu + served, throttled, err
}

// startServer starts the node's web server.
func (n *Node) startServer(ctx context.Context) (err error) {
	at := netip.AddrPortFrom(n.Addr, webPort)
	n.server, err = website.StartServer(ctx, at, n.site.Pages, n.place(n.served))
	return err
}

// upstreams returns the web servers of the node's gateway: the node's own, or those
// of all nodes if there is only one gateway.
func (n *Node) upstreams() []netip.AddrPort {
	if n.site.Balanced() {
		return []netip.AddrPort{netip.AddrPortFrom(n.Addr, webPort)}
	}
	var all []netip.AddrPort
	for _, n := range n.site.Nodes {
		all = append(all, netip.AddrPortFrom(n.Addr, webPort))
	}
	return all
}

// startGateway starts the node's gateway and waits until it forwards requests.
func (n *Node) startGateway(ctx context.Context) (err error) {
	g := gateways[n.site.Path.Peer.Name]
	args, files := g.command(n.upstreams())
	files[program.ChainFile], files[program.KeyFile] = string(n.site.cert.Chain), string(n.site.cert.Key)
	if args[0], err = program.FindGateway(args[0]); err != nil {
		return err
	}
	said := &program.Output{}
	n.gateway, err = program.Private{Args: args, Files: files, Environment: g.environment, Cgroup: n.limited.Join(),
		Said: said}.Start(ctx, n.place(n.limited))
	if err != nil {
		return err
	}
	if err := n.await(ctx); err != nil {
		return fmt.Errorf("start %s on %s: %w: %s", n.site.Path.Peer.Name, n.Name, err, said.Line())
	}
	return nil
}

// patience is the greatest time for each wait.
const patience = time.Minute

// await waits until the gateway answers with the small page.
func (n *Node) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	failed := errors.New("it does not listen")
	answers := func() bool {
		if program.Listens(n.gateway.Cmd.Process.Pid, securePort) {
			failed = n.site.ask(n.Addr)
		}
		return failed == nil
	}
	if !program.Await(ctx, n.gateway, answers) {
		return errors.Join(failed, ctx.Err())
	}
	return nil
}

// askTimeout is the time limit of a request to the gateway itself.
const askTimeout = 5 * time.Second

// ask fetches the small page from a gateway, at its node's address or at the virtual
// one.
func (s *Site) ask(at netip.Addr) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.cert.Chain)
	status, err := program.Question{At: netip.AddrPortFrom(at, securePort),
		Secure: &tls.Config{ServerName: Host, RootCAs: roots}, Host: Host, Path: website.Small,
		Limit: askTimeout}.Ask(s.client.Do)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("its answer is %d", status)
	}
	return err
}

// Kill kills all processes of the node. Its host keeps running, and refuses
// connections.
func (n *Node) Kill() error {
	requests, err := n.server.Requests()
	n.earlier += requests
	n.killGateway()
	n.server.Kill()
	return err
}

func (n *Node) killGateway() {
	if n.gateway != nil {
		_ = n.gateway.Kill() // its exit status says only that it was killed
	}
}

// Start starts the processes of a node that was killed, the gateway under its quota.
func (n *Node) Start(ctx context.Context) error {
	if err := n.startServer(ctx); err != nil {
		return err
	}
	return n.startGateway(ctx)
}

// Replace ends the gateway and starts it again, under its quota.
func (n *Node) Replace(ctx context.Context) error {
	n.killGateway()
	return n.startGateway(ctx)
}

// Drain removes the node from the service and waits until it has no connections.
// Enable adds it again and waits until the director uses it.
func (n *Node) Drain(ctx context.Context) error { return n.site.director.drain(ctx, n) }

// Enable ends what Drain began.
func (n *Node) Enable(ctx context.Context) error { return n.site.director.enable(ctx, n) }

// close ends the node's processes and removes its cgroups.
func (n *Node) close() error {
	n.killGateway()
	if n.server != nil {
		n.server.Kill()
	}
	var errs []error
	for _, group := range []*ledger.Limited{n.limited, n.served} {
		if group != nil {
			errs = append(errs, group.Close())
		}
	}
	return errors.Join(errs...)
}
