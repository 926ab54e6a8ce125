package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/topology"
	"fairlead/internal/plan"
)

// served is an agent that serves on the loopback.
type served struct {
	*Agent
	address string
	tokens  chan Token
	// needed has the features that the agent asked the kernel for.
	needed chan []plan.Feature
}

// serve starts an agent, which ends with the test.
func serve(t *testing.T) served {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("an agent needs root: run the test as root")
	}
	s := served{tokens: make(chan Token, 100), needed: make(chan []plan.Feature, 100)}
	var err error
	s.Agent, err = New(Options{Link: "lo", Version: "v1", Issued: func(token Token) { s.tokens <- token },
		Log: func(format string, args ...any) { t.Logf(format, args...) },
		Probe: func(needed []plan.Feature) (plan.Facts, error) {
			s.needed <- needed
			return plan.Facts{Missing: map[plan.Feature]string{plan.FeatureVXLAN: "it is switched off"}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s served) connect(t *testing.T, token Token, version string) (*Remote, error) {
	t.Helper()
	r, err := Connect(t.Context(), s.address, token, version, true)
	if err == nil {
		t.Cleanup(func() { r.Close() })
	}
	return r, err
}

// refused checks that the laboratory is refused with a reason.
func (s served) refused(t *testing.T, token Token, version, why string) {
	t.Helper()
	if _, err := s.connect(t, token, version); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want a refusal with %q", err, why)
	}
}

// TestKernelIsAskedForPaths: the agent asks the kernel for features that the paths of the laboratory may use, and says
// which of them it cannot build.
func TestKernelIsAskedForPaths(t *testing.T) {
	s := serve(t)
	r, err := s.connect(t, <-s.tokens, "v1")
	if err != nil {
		t.Fatal(err)
	}
	for path, programs := range map[string]bool{"nat": false, "ebpf": true} {
		if _, err := r.Describe(t.Context(), []string{"vxlan", path}, nil); err != nil {
			t.Fatal(err)
		}
		needed := <-s.needed
		if !slices.Contains(needed, plan.FeatureVXLAN) || slices.Contains(needed, plan.FeatureEBPF) != programs {
			t.Errorf("for vxlan and %s, the kernel was asked for %v", path, needed)
		}
	}
	if why, err := r.Unavailable(t.Context(), "vxlan", result.IPv4); err != nil ||
		!strings.Contains(why, "it is switched off") {
		t.Errorf("vxlan is not available because %q, %v", why, err)
	}
}

// TestOneLaboratoryPerToken: a token is valid for one laboratory, which is alone. Then
// the agent issues another one.
func TestOneLaboratoryPerToken(t *testing.T) {
	s := serve(t)
	first := <-s.tokens
	r, err := s.connect(t, first, "v1")
	if err != nil {
		t.Fatal(err)
	}
	s.refused(t, first, "v1", "another laboratory uses this agent")
	r.Close()
	second := <-s.tokens
	s.refused(t, first, "v1", "the token is wrong") // by the preface or by the greeting
	if _, err := s.connect(t, second, "v1"); err != nil {
		t.Error(err)
	}
}

// TestWrongTokens: however many wrong tokens were tried, the right one is valid.
func TestWrongTokens(t *testing.T) {
	s := serve(t)
	right := <-s.tokens
	wrong := right
	wrong.secret[0] ^= 1
	for range 20 {
		s.refused(t, wrong, "v1", "the token is wrong")
	}
	if _, err := s.connect(t, right, "v1"); err != nil {
		t.Error(err)
	}
}

// TestOtherVersion: another version is refused, and does not use the token up.
func TestOtherVersion(t *testing.T) {
	s := serve(t)
	token := <-s.tokens
	s.refused(t, token, "v2", "the agent has version v1 of fairlead, the laboratory v2")
	if _, err := s.connect(t, token, "v1"); err != nil {
		t.Error(err)
	}
}

// TestOtherAgent: the laboratory sends no secret to an agent whose certificate has
// another fingerprint, even if that agent accepts the preface.
func TestOtherAgent(t *testing.T) {
	s, other := serve(t), serve(t)
	token := <-other.tokens
	if _, err := s.connect(t, token, "v1"); !errors.Is(err, errNotAdmitted) {
		t.Errorf("got %v, want %v", err, errNotAdmitted)
	}
	s.mu.Lock()
	s.token = token
	s.mu.Unlock()
	if _, err := s.connect(t, token, "v1"); !errors.Is(err, errOtherAgent) {
		t.Errorf("got %v, want %v", err, errOtherAgent)
	}
}

// TestReplayedPreface: the copy of a preface does not admit a laboratory without the
// secret.
func TestReplayedPreface(t *testing.T) {
	s := serve(t)
	token := <-s.tokens
	preface, err := token.preface()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(preface); err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(conn, clientTLS(token))
	var a answer
	if err := errors.Join(send(secure, greeting{Version: "v1", Secret: make([]byte, secretSize)}),
		receive(secure, maxGreeting, &a)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(a.Refused, "the token is wrong") {
		t.Errorf("got %+v, want a refusal", a)
	}
	if _, err := s.connect(t, token, "v1"); err != nil {
		t.Error(err)
	}
}

// TestFlood: hosts without the token hold as many connections as they get, send other
// protocols and wrong prefaces, and try again at once. Each laboratory is admitted at
// its first try.
func TestFlood(t *testing.T) {
	s := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer cancel()
	for i, text := range []string{"GET / HTTP/1.1\r\nHost: agent\r\nUser-Agent: scanner\r\n\r\n", strings.Repeat("x", prefaceSize)} {
		flood.Go(func() {
			for ctx.Err() == nil {
				if conn := s.from(ctx, byte(i), text); conn != nil {
					_, _ = conn.Read(make([]byte, 1)) // until the agent closes it
					conn.Close()
				}
			}
		})
	}
	for range 5 {
		for range 2 * maxWaiting {
			if conn := s.from(ctx, 100, ""); conn != nil {
				defer conn.Close()
			}
		}
		r, err := Connect(t.Context(), s.address, <-s.tokens, "v1", true)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
}

// from connects a host with the agent, and sends text; it returns nil if that fails.
func (s served) from(ctx context.Context, host byte, text string) net.Conn {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, host)}}
	conn, err := d.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil
	}
	_, _ = conn.Write([]byte(text)) // the agent may have closed it
	return conn
}

// TestHostileOrders: an agent builds nothing that a laboratory of this version does
// not order.
func TestHostileOrders(t *testing.T) {
	s := serve(t)
	r, err := s.connect(t, <-s.tokens, "v1")
	if err != nil {
		t.Fatal(err)
	}
	server, client := topology.NewWire()
	good := machine.Order{Path: "host", Part: topology.ServerPart, Suite: "quick",
		Uplink: topology.Uplink{MAC: server, Peer: client}}
	for _, neighbour := range []string{"52:54:00:12:34:56", "00:00:00:00:00:01", "02:42:ac:11:00:02"} {
		mac, err := net.ParseMAC(neighbour)
		if err != nil {
			t.Fatal(err)
		}
		for _, wire := range []topology.Uplink{{MAC: mac, Peer: client}, {MAC: server, Peer: mac}, {}} {
			order := good
			order.Uplink = wire
			if _, err := r.Build(t.Context(), order); err == nil || !strings.Contains(err.Error(), "of other hosts") {
				t.Errorf("a wire with the address of a neighbour: %v", err)
			}
		}
	}
	for why, change := range map[string]func(o *machine.Order){
		"there is no such path": func(o *machine.Order) { o.Path = "../host" },
		"there is no part":      func(o *machine.Order) { o.Part = topology.Whole },
		"are not some of":       func(o *machine.Order) { o.Clients = append(o.Clients, "root") },
		"there is no suite":     func(o *machine.Order) { o.Suite = "none" },
		"there is no workload":  func(o *machine.Order) { o.Workloads = []string{"none"} },
	} {
		order := good
		change(&order)
		if _, err := r.Build(t.Context(), order); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want a refusal with %q", err, why)
		}
	}
	for _, c := range []call{{Do: "exec"}, {Do: doBegin, Part: 1}, {Do: doLoad, Part: -1}} {
		if _, err := r.call(t.Context(), c); err == nil {
			t.Errorf("call %+v was carried out", c)
		}
	}
}

func TestTokenText(t *testing.T) {
	token, err := newToken([]byte("certificate"))
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err := ParseToken(" " + token.String() + "\n"); err != nil || parsed != token {
		t.Errorf("parsed %v, %v, want %v", parsed, err, token)
	}
	for _, text := range []string{"", "fl1-", "fl1-AAAA", token.String()[1:], token.String() + "A"} {
		if _, err := ParseToken(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
