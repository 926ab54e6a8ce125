package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/topology"
)

// served is an agent that serves on the loopback.
type served struct {
	*Agent
	address string
	tokens  chan Token
}

// serve starts an agent, which ends with the test.
func serve(t *testing.T) served {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("an agent needs root: run the test as root")
	}
	s := served{tokens: make(chan Token, 100)}
	var err error
	s.Agent, err = New(Options{Link: "lo", Version: "v1", Issued: func(token Token) { s.tokens <- token },
		Log: func(format string, args ...any) { t.Logf(format, args...) }})
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
	s.refused(t, first, "v1", "the token is wrong, or was used already")
	if _, err := s.connect(t, second, "v1"); err != nil {
		t.Error(err)
	}
}

// TestWrongTokensVoidTheToken: after a few wrong secrets the right one is refused too.
func TestWrongTokensVoidTheToken(t *testing.T) {
	s := serve(t)
	right := <-s.tokens
	wrong := right
	wrong.secret[0] ^= 1
	for range maxTries - 1 {
		s.refused(t, wrong, "v1", "the token is wrong")
	}
	s.refused(t, wrong, "v1", "the token is void")
	next := <-s.tokens
	if _, err := s.connect(t, right, "v1"); err == nil {
		t.Error("the void token was accepted")
	}
	if _, err := s.connect(t, next, "v1"); err != nil {
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
// another fingerprint.
func TestOtherAgent(t *testing.T) {
	s, other := serve(t), serve(t)
	if _, err := s.connect(t, <-other.tokens, "v1"); !errors.Is(err, errOtherAgent) {
		t.Errorf("got %v, want %v", err, errOtherAgent)
	}
	if _, err := s.connect(t, <-s.tokens, "v1"); err != nil {
		t.Error(err)
	}
}

// TestSilentConnections: connections that send nothing do not keep a laboratory out
// for longer than they may take to greet.
func TestSilentConnections(t *testing.T) {
	s := serve(t)
	for range maxUnproved {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	token := <-s.tokens
	for limit := time.Now().Add(3 * greetingLimit); ; time.Sleep(100 * time.Millisecond) {
		_, err := s.connect(t, token, "v1")
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
}

// TestHostileOrders: an agent builds nothing that a laboratory of this version does
// not order.
func TestHostileOrders(t *testing.T) {
	s := serve(t)
	r, err := s.connect(t, <-s.tokens, "v1")
	if err != nil {
		t.Fatal(err)
	}
	local := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	good := machine.Order{Path: "host", Part: topology.ServerPart, Suite: "quick",
		Uplink: topology.Uplink{MAC: local, Peer: local}}
	for why, change := range map[string]func(o *machine.Order){
		"there is no such path":    func(o *machine.Order) { o.Path = "../host" },
		"there is no part":         func(o *machine.Order) { o.Part = topology.Whole },
		"are not some of":          func(o *machine.Order) { o.Clients = append(o.Clients, "root") },
		"not locally administered": func(o *machine.Order) { o.Uplink.MAC = net.HardwareAddr{0, 0, 0, 0, 0, 1} },
		"there is no suite":        func(o *machine.Order) { o.Suite = "none" },
		"there is no workload":     func(o *machine.Order) { o.Workloads = []string{"none"} },
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
