package site

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
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

// ownFiles joins a cgroup of version 1 if $1 names one, and runs a program with a
// private /mnt, into which it first copies the files that $2 names from the
// descriptors from 3 on. Everything is gone when it ends.
const ownFiles = `if [ -n "$1" ]; then echo 0 > "$1"; fi
mount -t tmpfs none /mnt; fd=3
for name in $2; do cat /proc/self/fd/$fd > /mnt/$name; fd=$((fd+1)); done
shift 2; cd /mnt; exec "$@"`

// startGateway starts the node's gateway and waits until it forwards requests.
func (n *Node) startGateway(ctx context.Context) (err error) {
	g := gateways[n.site.Path.Peer.Name]
	args, files := g.command(n.upstreams())
	files[chainFile], files[keyFile] = string(n.site.cert.Chain), string(n.site.cert.Key)
	if args[0], err = program.FindGateway(args[0]); err != nil {
		return err
	}
	names := []string{}
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", ownFiles, "sh", n.limited.Join(),
		strings.Join(names, " ")}, args...)...)
	for _, name := range names {
		f, err := program.InMemory(files[name])
		if err != nil {
			return err
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	said := &program.Output{}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), g.environment...), said, said
	at := n.place(n.limited)
	at.Contained = true // so that its children end with it
	if n.gateway, err = child.Start(ctx, cmd, at); err != nil {
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
	var conn net.Conn
	err := s.client.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", netip.AddrPortFrom(at, securePort).String(), askTimeout)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return err
	}
	secure := tls.Client(conn, &tls.Config{ServerName: Host, RootCAs: roots})
	if _, err := fmt.Fprintf(secure, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", website.Small,
		Host); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("its answer is %d", answer.StatusCode)
	}
	return errors.Join(err, answer.Body.Close())
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
