package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	Facts   plan.Facts
	// Issued is called with each new token, before it is valid.
	Issued func(Token)
	// Log is called with one line for each thing that happens.
	Log func(format string, args ...any)
}

const (
	// maxTries is the number of wrong secrets after which a token is void.
	maxTries = 3
	// maxUnproved limits connections without a greeting, greetingLimit how long one
	// may take.
	maxUnproved   = 8
	greetingLimit = 10 * time.Second
)

// Agent serves laboratories, one after the other.
type Agent struct {
	Options
	tls  *tls.Config
	cert []byte

	mu    sync.Mutex
	token Token
	tries int
	// busy is true while a laboratory uses the machine; no token is valid then.
	busy bool
}

// New returns an agent with a certificate of its own.
func New(opt Options) (*Agent, error) {
	cert, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("make the agent's certificate: %w", err)
	}
	a := &Agent{Options: opt, tls: serverTLS(cert), cert: cert.Certificate[0]}
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
	a.token, a.tries, a.busy = token, 0, false
	return nil
}

// Serve serves laboratories until ctx ends, and then removes everything that the
// current one has built. It closes the listener.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	unproved := make(chan struct{}, maxUnproved)
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
		select {
		case unproved <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		all.Go(func() {
			defer conn.Close()
			s, err := a.greet(ctx, conn.(*net.TCPConn))
			<-unproved
			if err != nil {
				a.Log("%s: %v", conn.RemoteAddr(), err)
				return
			}
			a.serve(ctx, s, conn.RemoteAddr())
		})
	}
}

// serve serves an admitted laboratory, and issues the next token.
func (a *Agent) serve(ctx context.Context, s *session, from net.Addr) {
	a.Log("laboratory at %s connected", from)
	err := s.run(ctx)
	a.Log("laboratory at %s ended: everything that it built is removed", from)
	if err != nil {
		a.Log("remove what the laboratory at %s built: %v", from, err)
	}
	if ctx.Err() != nil {
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
	case a.tries >= maxTries:
		return errVoid
	case !a.token.matches(g.Secret):
		if a.tries++; a.tries < maxTries {
			return errors.New("the token is wrong, or was used already: use the last one that the agent has printed")
		}
		go a.replace()
		return errVoid
	case g.Version != a.Version:
		return fmt.Errorf("the agent has version %s of fairlead, the laboratory %s: use the same binary on both machines",
			a.Version, g.Version)
	}
	a.busy = true
	return nil
}

// errVoid means that too many wrong secrets were tried.
var errVoid = fmt.Errorf("the token is void after %d wrong ones: use the one that the agent prints now", maxTries)

// replace issues another token for one that is void.
func (a *Agent) replace() {
	a.Log("the token is void after %d wrong ones", maxTries)
	if err := a.issue(); err != nil {
		a.Log("%v", err)
	}
}

// release makes the token valid again after the machine could not be used.
func (a *Agent) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = false
}
