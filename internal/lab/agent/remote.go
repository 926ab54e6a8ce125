package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/site"
	"fairlead/internal/lab/visitor"

	"github.com/xtaci/smux"
)

// callLimit is how long an agent may take for one call: building a path with many
// rules, on a slow machine.
const callLimit = 3 * time.Minute

// drainLimit is how long visits may take after the last one has started.
const drainLimit = 10 * time.Minute

// Remote is a machine with an agent.
type Remote struct {
	// Address is how it was reached, with port.
	Address string
	// Met are the process ids of other laboratories on the machine.
	Met []int
	mux *smux.Session
}

// Connect connects a laboratory of this version with the agent at an address with
// port. The error says what to do.
func Connect(ctx context.Context, address string, token Token, version string, shared bool) (*Remote, error) {
	ctx, cancel := context.WithTimeout(ctx, greetingLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, unreachable(address, err)
	}
	r, err := greet(ctx, conn.(*net.TCPConn), token,
		greeting{Version: version, Secret: token.secret[:], Shared: shared})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use the agent at %s: %w", address, err), conn.Close())
	}
	r.Address = address
	return r, nil
}

// unreachable explains why there is no connection.
func unreachable(address string, err error) error {
	host, port, _ := net.SplitHostPort(address)
	advice := "check the name and the port"
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		advice = fmt.Sprintf("there is no route to %s, or the machine is off: see `ip route get %s`", host, host)
	case errors.Is(err, syscall.ECONNREFUSED):
		advice = fmt.Sprintf("nothing listens there: run `fairlead lab agent` on %s", host)
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		advice = fmt.Sprintf("a firewall on %s or in between drops TCP port %s, or the machine is off: open the port, "+
			"or choose another one with --listen", host, port)
	}
	return fmt.Errorf("connect to the agent at %s: %w: %s", address, err, advice)
}

func greet(ctx context.Context, conn *net.TCPConn, token Token, g greeting) (*Remote, error) {
	if err := limitSilence(conn); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(greetingLimit)); err != nil {
		return nil, err
	}
	preface, err := token.preface()
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(preface); err != nil {
		return nil, closed(err)
	}
	secure := tls.Client(conn, clientTLS(token))
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", closed(err))
	}
	if err := send(secure, g); err != nil {
		return nil, err
	}
	var a answer
	if err := receive(secure, maxGreeting, &a); err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	if a.Refused != "" {
		return nil, errors.New(a.Refused)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	mux, err := smux.Client(secure, streams())
	if err != nil {
		return nil, err
	}
	go func() {
		_, _ = mux.AcceptStream() // the agent opens none, so this is the connection's end
		mux.Close()
	}()
	return &Remote{mux: mux, Met: a.Met}, nil
}

// Addr returns the agent's address on the network.
func (r *Remote) Addr() netip.Addr {
	at, _ := netip.ParseAddrPort(r.mux.RemoteAddr().String()) // of TCP, so it parses
	return at.Addr()
}

// Gone returns a channel that is closed when the connection has ended.
func (r *Remote) Gone() <-chan struct{} { return r.mux.CloseChan() }

// open sends a call and returns its stream with the reply. The stream is open if err
// is nil.
func (r *Remote) open(ctx context.Context, c call) (stream net.Conn, out reply, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("agent at %s: %s: %w", r.Address, c.Do, err)
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, out, err
	}
	if stream, err = r.mux.OpenStream(); err != nil {
		return nil, out, lost(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Now()) })
	defer stop()
	err = stream.SetDeadline(time.Now().Add(callLimit + time.Duration(c.Seconds)*time.Second))
	if err == nil {
		err = send(stream, c)
	}
	if err == nil {
		err = receive(stream, maxMessage, &out)
	}
	err = lost(err)
	if err == nil && out.Error != "" {
		err = errors.New(out.Error)
	}
	if err == nil {
		err = stream.SetDeadline(time.Time{})
	}
	if err != nil {
		stream.Close()
	}
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return stream, out, err
}

// lost explains errors of a connection that has ended.
func lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("the connection has ended, because the agent was killed or the link is lost: %w", err)
	}
	return err
}

// call sends a call and returns the reply.
func (r *Remote) call(ctx context.Context, c call) (reply, error) {
	stream, out, err := r.open(ctx, c)
	if err == nil {
		stream.Close()
	}
	return out, err
}

// Describe returns the machine as the report shows it. It measures the traffic of the
// machine's link for a moment. The paths are those whose programs matter. It returns an
// error if a tool is not installed there.
func (r *Remote) Describe(ctx context.Context, paths, tools []string) (result.Machine, error) {
	out, err := r.call(ctx, call{Do: doDescribe, Paths: paths, Tools: tools})
	if err == nil && out.Why != "" {
		err = fmt.Errorf("machine at %s: %s", r.Address, out.Why)
	}
	out.Machine.Address = r.Address
	return out.Machine, err
}

// Unavailable implements machine.Machine.
func (r *Remote) Unavailable(ctx context.Context, path string, f result.Family) (string, error) {
	out, err := r.call(ctx, call{Do: doUnavailable, Path: path, Family: f})
	return out.Why, err
}

// Build implements machine.Machine.
func (r *Remote) Build(ctx context.Context, o machine.Order) (machine.Part, error) {
	out, err := r.call(ctx, call{Do: doBuild, Order: o})
	if err != nil {
		return nil, err
	}
	p := &remotePart{remote: r, id: out.Part, clients: map[result.Client]*load.Client{}, flowAddrs: out.FlowAddrs}
	if out.Server {
		g, err := r.generator(ctx, call{Do: doLoad, Part: out.Part, Server: true})
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.server = load.AdoptServer(g, g)
	}
	for _, c := range out.Clients {
		if !slices.Contains(clients, c) {
			continue
		}
		g, err := r.generator(ctx, call{Do: doLoad, Part: out.Part, Client: c})
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.clients[c] = load.AdoptClient(g, g)
	}
	return p, nil
}

// Close ends the connection. The agent then removes everything.
func (r *Remote) Close() error { return r.mux.Close() }

// generator opens the stream of a generator.
func (r *Remote) generator(ctx context.Context, c call) (*generator, error) {
	stream, _, err := r.open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &generator{Conn: stream, done: make(chan struct{})}, nil
}

// remotePart is a part on a machine with an agent.
type remotePart struct {
	remote    *Remote
	id        int
	server    *load.Server
	clients   map[result.Client]*load.Client
	flowAddrs []netip.Addr
}

// Server implements machine.Part.
func (p *remotePart) Server() *load.Server { return p.server }

// Client implements machine.Part.
func (p *remotePart) Client(c result.Client) *load.Client { return p.clients[c] }

// FlowAddrs implements machine.Part.
func (p *remotePart) FlowAddrs() []netip.Addr { return p.flowAddrs }

// Prepare implements machine.Part.
func (p *remotePart) Prepare(ctx context.Context, c result.Client) error {
	_, err := p.remote.call(ctx, call{Do: doPrepare, Part: p.id, Client: c})
	return err
}

// Begin implements machine.Part.
func (p *remotePart) Begin(ctx context.Context, c result.Client) error {
	_, err := p.remote.call(ctx, call{Do: doBegin, Part: p.id, Client: c})
	return err
}

// End implements machine.Part.
func (p *remotePart) End(ctx context.Context) (result.Ledger, ledger.Gates, error) {
	out, err := p.remote.call(ctx, call{Do: doEnd, Part: p.id})
	return out.Ledger, out.Gates, err
}

// Memory implements machine.Part.
func (p *remotePart) Memory(ctx context.Context) (float64, error) {
	out, err := p.remote.call(ctx, call{Do: doMemory, Part: p.id})
	return out.Memory, err
}

// Serve implements machine.Part.
func (p *remotePart) Serve(ctx context.Context, c result.Client, tool, workload string) error {
	_, err := p.remote.call(ctx, call{Do: doServe, Part: p.id, Client: c, Tool: tool, Workload: workload})
	return err
}

// EndServe implements machine.Part.
func (p *remotePart) EndServe(ctx context.Context) error {
	_, err := p.remote.call(ctx, call{Do: doEndServe, Part: p.id})
	return err
}

// Drive implements machine.Part.
func (p *remotePart) Drive(ctx context.Context, c result.Client, tool, workload string, seconds int) ([]byte, error) {
	out, err := p.remote.call(ctx, call{Do: doDrive, Part: p.id, Client: c, Tool: tool, Workload: workload,
		Seconds: seconds})
	return out.Output, err
}

// OpenSite implements machine.Sites.
func (p *remotePart) OpenSite(ctx context.Context, workload string) (site.Entry, error) {
	out, err := p.remote.call(ctx, call{Do: doOpenSite, Part: p.id, Workload: workload})
	return out.Site, err
}

// CountSite implements machine.Sites.
func (p *remotePart) CountSite(ctx context.Context) (site.Counters, error) {
	out, err := p.remote.call(ctx, call{Do: doCountSite, Part: p.id})
	if err == nil && len(out.Counters.Nodes) != site.Nodes {
		err = fmt.Errorf("agent at %s: %s: the reply has %d nodes, want %d", p.remote.Address, doCountSite,
			len(out.Counters.Nodes), site.Nodes)
	}
	return out.Counters, err
}

// CloseSite implements machine.Sites. If the connection has ended, the agent has removed
// the site already.
func (p *remotePart) CloseSite(ctx context.Context) error {
	if p.remote.mux.IsClosed() {
		return nil
	}
	_, err := p.remote.call(ctx, call{Do: doCloseSite, Part: p.id})
	return err
}

// Visit implements machine.Sites.
func (p *remotePart) Visit(ctx context.Context, o visitor.Order) (visitor.Visits, error) {
	longest := machine.Lasts(o.Plan) + drainLimit
	out, err := p.remote.call(ctx, call{Do: doVisit, Part: p.id, Visits: o, Seconds: int(longest.Seconds())})
	return out.Visits, err
}

// Prove implements machine.Part.
func (p *remotePart) Prove(ctx context.Context, t machine.Traffic) (*result.Proof, error) {
	out, err := p.remote.call(ctx, call{Do: doProve, Part: p.id, Traffic: t})
	if err == nil && out.Proof == nil {
		err = fmt.Errorf("agent at %s: %s: the reply has no proof", p.remote.Address, doProve)
	}
	return out.Proof, err
}

// Close implements machine.Part. If the connection has ended, the agent has removed
// the part already.
func (p *remotePart) Close() error {
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.Close())
	}
	if p.server != nil {
		errs = append(errs, p.server.Close())
	}
	if !p.remote.mux.IsClosed() {
		_, err := p.remote.call(context.Background(), call{Do: doClose, Part: p.id})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
