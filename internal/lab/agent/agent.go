package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"fairlead/internal/plan"
)

// Options configure an agent.
type Options struct {
	// Link is the link on which hosts of the laboratory get a macvlan.
	Link string
	// Version is Fairlead's version; a laboratory must have the same.
	Version string
	// Probe returns what the kernel has. It need not test features that are not among those needed.
	Probe func(needed []plan.Feature) (plan.Facts, error)
	// Once ends Serve after one laboratory, or if none connects within onceLimit.
	Once bool
	// Issued is called with each new token, before it is valid.
	Issued func(Token)
	// Log is called with one line for each thing that happens.
	Log func(format string, args ...any)
}

const (
	// prefaceLimit is how long a connection may take for its preface, greetingLimit for
	// the greeting. maxGreetings limits the connections between the two.
	prefaceLimit  = 2 * time.Second
	greetingLimit = 10 * time.Second
	maxGreetings  = 8
	// onceLimit is described at Options.Once.
	onceLimit = 30 * time.Second
)

// Agent serves laboratories, one after the other.
type Agent struct {
	Options
	tls       *tls.Config
	cert      []byte
	waiting   waiting
	greetings chan struct{}

	mu    sync.Mutex
	token Token
	// busy is true while a laboratory uses the machine; no token is valid then.
	busy bool
}

// New returns an agent with a certificate of its own.
func New(opt Options) (*Agent, error) {
	cert, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("make the agent's certificate: %w", err)
	}
	a := &Agent{Options: opt, tls: serverTLS(cert), cert: cert.Certificate[0],
		greetings: make(chan struct{}, maxGreetings)}
	return a, a.issue()
}

// issue makes a token, which replaces the earlier one.
func (a *Agent) issue() error {
	token, err := newToken(a.cert)
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	a.Issued(token)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token, a.busy = token, false
	return nil
}

// Serve serves laboratories until ctx ends, and then removes everything that the
// current one has built. It closes the listener.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	if a.Once {
		defer time.AfterFunc(onceLimit, func() { a.idle(cancel) }).Stop()
	}
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a laboratory: %w", err)
		}
		tcp := conn.(*net.TCPConn)
		a.waiting.add(tcp)
		all.Go(func() {
			defer conn.Close()
			if a.connected(ctx, tcp) && a.Once {
				cancel()
			}
		})
	}
}

// idle calls fn if no laboratory uses the agent.
func (a *Agent) idle(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.busy {
		fn()
	}
}

// connected serves a connection until it ends, and reports whether it was an admitted
// laboratory's. A connection without the token leaves no line in the log: anyone can
// make many.
func (a *Agent) connected(ctx context.Context, conn *net.TCPConn) bool {
	proved := a.proved(ctx, conn)
	a.waiting.remove(conn)
	if !proved {
		return false
	}
	select {
	case a.greetings <- struct{}{}:
	default:
		return false
	}
	s, err := a.greet(ctx, conn)
	<-a.greetings
	if err != nil {
		a.Log("%s: %v", conn.RemoteAddr(), err)
		return false
	}
	a.serve(ctx, s, conn.RemoteAddr())
	return true
}

// proved reads the preface, and reports whether it was made with the token.
func (a *Agent) proved(ctx context.Context, conn *net.TCPConn) bool {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var preface [prefaceSize]byte
	if conn.SetDeadline(time.Now().Add(prefaceLimit)) != nil {
		return false
	}
	if _, err := io.ReadFull(conn, preface[:]); err != nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token.proves(preface[:])
}

// serve serves an admitted laboratory, and issues the next token.
func (a *Agent) serve(ctx context.Context, s *session, from net.Addr) {
	a.Log("laboratory at %s connected", from)
	err := s.run(ctx)
	a.Log("laboratory at %s ended: everything that it built is removed", from)
	if err != nil {
		a.Log("remove what the laboratory at %s built: %v", from, err)
	}
	if ctx.Err() != nil || a.Once {
		return
	}
	if err := a.issue(); err != nil {
		a.Log("%v", err)
	}
}

// greet reads the greeting and admits the laboratory, or refuses it.
func (a *Agent) greet(ctx context.Context, conn *net.TCPConn) (*session, error) {
	if err := limitSilence(conn); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(greetingLimit)); err != nil {
		return nil, err
	}
	secure := tls.Server(conn, a.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	var g greeting
	if err := receive(secure, maxGreeting, &g); err != nil {
		return nil, fmt.Errorf("read the greeting: %w", err)
	}
	out := answer{Version: a.Version}
	err := a.admit(g)
	var s *session
	if err == nil {
		if s, out.Met, err = a.open(secure, g.Shared); err != nil {
			a.release()
		}
	}
	if err != nil {
		out.Refused = err.Error()
		return nil, errors.Join(fmt.Errorf("refused: %w", err), send(secure, out))
	}
	if err := errors.Join(send(secure, out), conn.SetDeadline(time.Time{})); err != nil {
		return nil, errors.Join(err, s.close(), a.issue())
	}
	return s, nil
}

// admit takes the token. The order of the checks is: another laboratory, secret,
// version. So only a laboratory with the token learns anything else, and another
// version does not use the token up.
func (a *Agent) admit(g greeting) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.busy:
		return errors.New("another laboratory uses this agent: wait until it ends, and use the token that the agent " +
			"prints then")
	case !a.token.matches(g.Secret):
		return errors.New("the token is wrong, or was used already: use the last one that the agent has printed")
	case g.Version != a.Version:
		return fmt.Errorf("the agent has version %s of fairlead, the laboratory %s: use the same binary on both machines",
			a.Version, g.Version)
	}
	a.busy = true
	return nil
}

// release makes the token valid again after the machine could not be used.
func (a *Agent) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = false
}
