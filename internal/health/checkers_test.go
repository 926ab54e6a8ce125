package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"fairlead/internal/model"
	"fairlead/test/place"
)

// listen serves connections until the test ends, and returns its address.
func listen(t testing.TB, address string, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// answering returns a handler that sends an answer, after a request if it must wait
// for one.
func answering(answer string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, answer)
		_, _ = io.Copy(io.Discard, c)
	}
}

// datagrams answers datagrams until the test ends.
func datagrams(t testing.TB, answer func([]byte) []byte) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		question := make([]byte, 4096)
		for {
			n, from, err := c.ReadFromUDPAddrPort(question)
			if err != nil {
				return
			}
			if a := answer(question[:n]); a != nil {
				_, _ = c.WriteToUDPAddrPort(a, from)
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// closedPort returns an address on which no process listens, and reserves it until
// the test ends.
func closedPort(t testing.TB) netip.AddrPort {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s) })
	loopback := [4]byte{127, 0, 0, 1}
	if err := unix.Bind(s, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4(loopback), uint16(at.(*unix.SockaddrInet4).Port))
}

// check runs one check with a long timeout.
func check(t testing.TB, c model.Check, m Means, at Target) Result {
	t.Helper()
	one, err := New(c, m)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return one.Check(ctx, at)
}

func expect(t *testing.T, r Result, ok bool, detail string) {
	t.Helper()
	if r.OK != ok || r.Void || !strings.Contains(r.Detail, detail) {
		t.Errorf("the result is %+v, want %v and %q", r, ok, detail)
	}
}

func TestTCP(t *testing.T) {
	tcp := model.Check{Type: model.CheckTCP}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		at := Target{Real: listen(t, address, answering("220 mail\r\n"))}
		expect(t, check(t, tcp, Means{}, at), true, "connected")
		at.Dial = (&net.Dialer{}).DialContext
		expect(t, check(t, tcp, Means{}, at), true, "connected")
		expect(t, check(t, model.Check{Type: model.CheckTCP, Expect: "^220 "}, Means{}, at), true, "the answer matches")
		expect(t, check(t, model.Check{Type: model.CheckTCP, Send: "QUIT\r\n", Expect: "^220 "}, Means{}, at), true,
			"the answer matches")
	}
	closed := Target{Real: closedPort(t)}
	expect(t, check(t, tcp, Means{}, closed), false, "connect: connection refused")
	closed.Dial = (&net.Dialer{}).DialContext
	expect(t, check(t, tcp, Means{}, closed), false, "connect: connection refused")
	shut := Target{Real: listen(t, "127.0.0.1:0", func(c net.Conn) { _, _ = io.WriteString(c, "554 \x1b[31mno\r\n") })}
	expect(t, check(t, model.Check{Type: model.CheckTCP, Expect: "^220 "}, Means{}, shut), false,
		`the answer does not match: "554 \x1b[31mno\r\n"`)
}

// TestConnectWaits checks that a check waits until its timeout for a connection that
// is not established at once.
func TestConnectWaits(t *testing.T) {
	// A listener whose queue is full does not answer.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { err = shorten(int(fd)) })
	}
	if err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	one, err := New(model.Check{Type: model.CheckTCP}, Means{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	expect(t, one.Check(ctx, Target{Real: to}), false, "connect: no answer in time")
	done := make(chan Result)
	go func() { done <- check(t, model.Check{Type: model.CheckTCP}, Means{}, Target{Real: to}) }()
	for range 2 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	expect(t, <-done, true, "connected")
}

// shorten makes a listener's queue as short as possible.
func shorten(fd int) error { return unix.Listen(fd, 0) }

func TestHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ok", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "host="+r.Host) })
	mux.HandleFunc("HEAD /head", func(w http.ResponseWriter,
		r *http.Request) {
		w.Header().Set("Content-Length", "1000")
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter,
		r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		_, _ = io.WriteString(w, strings.Repeat("a", 60<<10)+"END")
	})
	plain, secured := httptest.NewServer(mux), quietTLS(mux, false)
	defer plain.Close()
	defer secured.Close()
	m := Means{Roots: x509.NewCertPool()}
	m.Roots.AddCert(secured.Certificate())
	for _, c := range []struct {
		name   string
		check  model.Check
		ok     bool
		detail string
	}{
		{"a page", model.Check{Path: "/ok"}, true, "status 200"},
		{"the page that is not there", model.Check{}, false, "status 404, want 200-399"},
		{"a status as wanted", model.Check{Path: "/broken", Status: "200,500-599"}, true, "status 503"},
		{"no redirect is followed", model.Check{Path: "/moved"}, true, "status 302"},
		{"no redirect is wanted", model.Check{Path: "/moved", Status: "200"}, false, "status 302, want 200"},
		{"the host's name", model.Check{Path: "/ok", Host: "example.com", Body: "^host=example.com$"}, true,
			"the body matches"},
		{"another host's name", model.Check{Path: "/ok", Body: "example.com"}, false,
			"status 200, but the body does not match"},
		{"a method", model.Check{Method: "HEAD", Path: "/head"}, true, "status 200"},
		{"the end of a body after interim answers", model.Check{Path: "/early", Body: "END$"}, true,
			"the body matches"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			c.check.Type = model.CheckHTTP
			expect(t, check(t, c.check, m, Target{Real: where(t, plain)}), c.ok, c.detail)
			c.check.Type = model.CheckHTTPS
			expect(t, check(t, c.check, m, Target{Real: where(t, secured)}), c.ok, c.detail)
		})
	}
	expect(t, check(t, model.Check{Type: model.CheckHTTP}, m, Target{Real: where(t, secured)}), false, "status 400")
	expect(t, check(t, model.Check{Type: model.CheckHTTPS}, m, Target{Real: where(t, plain)}), false, "TLS: ")
	for _, wrong := range []model.Check{{Path: "relative"}, {Path: "/%"}, {Path: "//other/x y\x00"}, {Method: "G ET"},
		{Host: "a\r\nX: y"}, {Body: "("}, {Status: "9"}} {
		wrong.Type = model.CheckHTTP
		if _, err := New(wrong, m); err == nil {
			t.Errorf("%+v: no error", wrong)
		}
	}
}

// quietTLS starts a server that does not log the handshakes that are meant to
// fail.
func quietTLS(h http.Handler, http2 bool) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = http2
	s.StartTLS()
	return s
}

func where(t *testing.T, s *httptest.Server) netip.AddrPort {
	t.Helper()
	return s.Listener.Addr().(*net.TCPAddr).AddrPort()
}

func TestTLS(t *testing.T) {
	s := quietTLS(http.NotFoundHandler(), false)
	defer s.Close()
	m := Means{Roots: x509.NewCertPool()}
	m.Roots.AddCert(s.Certificate())
	at := Target{Real: where(t, s)}
	century := 100 * 365 * 24 * time.Hour
	for _, c := range []struct {
		name   string
		check  model.Check
		means  Means
		ok     bool
		detail string
	}{
		{"the certificate is not verified", model.Check{}, Means{}, true, "connected"},
		{"the name is right", model.Check{TLSName: "example.com"}, m, true, "connected"},
		{"the name is another", model.Check{TLSName: "example.org"}, m, false, "TLS: "},
		{"it is signed by an unknown authority", model.Check{TLSName: "example.com"}, Means{Roots: x509.NewCertPool()},
			false, "TLS: "},
		{"it is valid for long enough", model.Check{Expiry: time.Hour}, m, true, "connected"},
		{"it expires too soon", model.Check{Expiry: century}, m, false, "the certificate expires on 2084-01-29"},
		{"it expires too soon, and is not verified", model.Check{Expiry: century}, Means{}, false,
			"the certificate expires on 2084-01-29"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			c.check.Type, c.check.TLS = model.CheckTCP, true
			expect(t, check(t, c.check, c.means, at), c.ok, c.detail)
		})
	}
	certificate := s.Certificate()
	if err := expires(certificate, time.Hour, certificate.NotAfter.Add(time.Second)); err == nil ||
		!strings.Contains(err.Error(), "expired on") {
		t.Errorf("after its end: %v", err)
	}
}

// TestTLSAnswerAfterPause reads the part of an answer over TLS that comes after a pause.
func TestTLSAnswerAfterPause(t *testing.T) {
	s := quietTLS(http.NotFoundHandler(), false)
	s.Close()
	later := make(chan struct{})
	at := listen(t, "127.0.0.1:0", func(c net.Conn) {
		server := tls.Server(c, s.TLS)
		_ = server.Handshake()
		<-later
		_, _ = io.WriteString(server, "220 ready")
		_, _ = io.Copy(io.Discard, c)
	})
	raw, err := open(t.Context(), Target{Real: at}, "tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn, err := newSecure(model.Check{}, Means{}).client(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 20)
	if _, err := conn.Read(answer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("in the pause: %v", err)
	}
	close(later)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := tcpCheck{expect: regexp.MustCompile("^220 ready$")}.read(ctx, conn)
	expect(t, r, true, "the answer matches")
}

func TestGRPC(t *testing.T) {
	// serving answers with the gRPC status and the health status in its path.
	serving := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		switch {
		case r.ProtoMajor != 2 || r.URL.Path != "/grpc.health.v1.Health/Check" ||
			r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers":
			w.WriteHeader(http.StatusBadRequest)
			return
		case len(question) > 5 && string(question[7:]) == "unknown":
			w.Header().Set("Grpc-Status", "5")
			return
		case len(question) > 5 && string(question[7:]) == "page":
			return
		}
		status := byte(1)
		if len(question) > 5 && string(question[7:]) == "ill" {
			status = 2
		}
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, status})
		w.Header().Set("Grpc-Status", "0")
	})
	plain, secured := httptest.NewUnstartedServer(serving), quietTLS(serving, true)
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Start()
	defer plain.Close()
	defer secured.Close()
	for _, c := range []struct {
		service string
		ok      bool
		detail  string
	}{
		{"", true, "serving"},
		{"web", true, "serving"},
		{"ill", false, "health status 2, want 1 (serving)"},
		{"unknown", false, "gRPC status 5: the server does not know the service"},
		{"page", false, "no gRPC status: is it a gRPC server?"},
	} {
		expect(t, check(t, model.Check{Type: model.CheckGRPC, Service: c.service}, Means{},
			Target{Real: where(t, plain)}), c.ok, c.detail)
		expect(t, check(t, model.Check{Type: model.CheckGRPC, Service: c.service, TLS: true}, Means{},
			Target{Real: where(t, secured)}), c.ok, c.detail)
	}
	expect(t, check(t, model.Check{Type: model.CheckGRPC, TLS: true, TLSName: "example.com"},
		Means{Roots: x509.NewCertPool()}, Target{Real: where(t, secured)}), false, "TLS: ")
	expect(t, check(t, model.Check{Type: model.CheckGRPC}, Means{}, Target{Real: closedPort(t)}), false,
		"connection refused")
}

func TestDNS(t *testing.T) {
	answer := func(change func(*dnsmessage.Message)) func([]byte) []byte {
		return func(question []byte) []byte {
			var m dnsmessage.Message
			if err := m.Unpack(question); err != nil {
				return nil
			}
			m.Response = true
			change(&m)
			packed, _ := m.Pack()
			return packed
		}
	}
	found := answer(func(m *dnsmessage.Message) {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name,
			Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}}}
	})
	for _, c := range []struct {
		name   string
		answer func([]byte) []byte
		ok     bool
		detail string
	}{
		{"found", found, true, "example.com. A is answered"},
		{"truncated", answer(func(m *dnsmessage.Message) { m.Truncated = true }), true, "is answered"},
		{"empty", answer(func(*dnsmessage.Message) {}), false, "no answer for example.com. A"},
		{"refused", answer(func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeRefused }), false,
			"Refused for example.com. A"},
		{"cut", func(q []byte) []byte { return found(q)[:len(q)+3] }, false, "parse the answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, check(t, model.Check{Type: model.CheckDNS, Query: "example.com"}, Means{},
				Target{Real: datagrams(t, c.answer)}), c.ok, c.detail)
		})
	}
	t.Run("strangers' answers are passed over", func(t *testing.T) {
		d, err := newDNS(model.Check{Query: "example.com."}, Means{})
		if err != nil {
			t.Fatal(err)
		}
		question, _ := d.(dnsCheck).pack(7)
		for _, datagram := range [][]byte{nil, []byte("garbage"), question} {
			if _, answers := d.(dnsCheck).judge(datagram, 7); answers {
				t.Errorf("%q is accepted as an answer", datagram)
			}
		}
	})
	for _, record := range model.DNSRecords {
		if _, err := newDNS(model.Check{Query: "example.com", Record: strings.ToLower(record)}, Means{}); err != nil {
			t.Error(err)
		}
	}
	for _, wrong := range []model.Check{{Query: "x", Record: "NONE"}, {Query: strings.Repeat("a", 300)},
		{Query: "a..b"}} {
		if _, err := newDNS(wrong, Means{}); err == nil {
			t.Errorf("%+v: no error", wrong)
		}
	}
}

func TestUDP(t *testing.T) {
	echo := datagrams(t, func(q []byte) []byte { return append([]byte("re: "), q...) })
	silent := datagrams(t, func([]byte) []byte { return nil })
	udp := func(send, expect string) model.Check {
		return model.Check{Type: model.CheckUDP, Send: send, Expect: expect}
	}
	expect(t, check(t, udp("ping", "^re: ping$"), Means{}, Target{Real: echo}), true, "the answer matches")
	expect(t, check(t, udp("ping", ""), Means{}, Target{Real: echo}), true, "it answers")
	expect(t, check(t, udp("", ""), Means{}, Target{Real: silent}), true, "no ICMP message reports the port as closed")
	closed := Target{Real: netip.MustParseAddrPort("127.0.0.1:1")}
	for _, send := range []string{"ping", ""} {
		r := check(t, udp(send, ""), Means{}, closed)
		// A check without CPU time does not read the message within closedWithin.
		for end := time.Now().Add(place.Timeout); r.OK && time.Now().Before(end); {
			r = check(t, udp(send, ""), Means{}, closed)
		}
		expect(t, r, false, "read: connection refused")
	}
}

// TestGarbageIsNoSilence checks that a server that sends a wrong answer is not reported
// as silent.
func TestGarbageIsNoSilence(t *testing.T) {
	garbage := Target{Real: datagrams(t, func([]byte) []byte { return []byte("garbage") })}
	for _, c := range []model.Check{{Type: model.CheckDNS, Query: "example.com"},
		{Type: model.CheckUDP, Send: "ping", Expect: "^pong"}} {
		one, err := New(c, Means{})
		if err != nil {
			t.Fatal(err)
		}
		var r Result
		for patience := time.Second / 2; r.Failure != WrongAnswer && patience < time.Minute; patience *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			r = one.Check(ctx, garbage)
			cancel()
		}
		if want := "a datagram came that does not answer the request"; r.OK || r.Failure != WrongAnswer ||
			r.Detail != want {
			t.Errorf("%s: %+v, want %s", c.Type, r, want)
		}
	}
}

func TestDocker(t *testing.T) {
	asked := ""
	m := Means{Container: func(_ context.Context, endpoint string) (bool, string, error) {
		asked = endpoint
		switch endpoint {
		case "well":
			return true, "healthy", nil
		case "ill":
			return false, "unhealthy: exit 1", nil
		}
		return false, "", context.DeadlineExceeded
	}}
	docker := model.Check{Type: model.CheckDocker}
	expect(t, check(t, docker, m, Target{Endpoint: "well"}), true, "healthy")
	expect(t, check(t, docker, m, Target{Endpoint: "ill"}), false, "unhealthy: exit 1")
	if r := check(t, docker, m, Target{Endpoint: "gone"}); !r.Void || asked != "gone" {
		t.Errorf("an engine that does not answer: %+v", r)
	}
	expect(t, check(t, docker, m, Target{}), false, "it is not a container on this host")
	if _, err := New(docker, Means{}); err == nil {
		t.Error("no error without an engine")
	}
}

func TestAgent(t *testing.T) {
	web, agent := listen(t, "127.0.0.1:0", answering("")),
		listen(t, "127.0.0.1:0", answering("50% drain # backup\nup\n"))
	at := Target{Real: web}
	r := check(t, model.Check{Type: model.CheckTCP, Agent: agent.Port()}, Means{}, at)
	if want := (Advice{Weighs: true, Share: 50, Admin: "drain", Reason: "backup"}); !r.OK || r.Advice != want {
		t.Errorf("it found %+v, want %+v", r, want)
	}
	if r := check(t, model.Check{Agent: agent.Port()}, Means{}, at); !r.OK || r.Detail != "agent: 50% drain (backup)" {
		t.Errorf("the agent alone: %+v", r)
	}
	unreachable := closedPort(t).Port()
	expect(t, check(t, model.Check{Type: model.CheckTCP, Agent: unreachable}, Means{}, at), true, "connected")
	if r := check(t, model.Check{Agent: unreachable}, Means{}, at); !r.Void {
		t.Errorf("no agent: %+v", r)
	}
	if one, err := New(model.Check{}, Means{}); one != nil || err != nil {
		t.Errorf("nothing to check: %v, %v", one, err)
	}
	if _, err := New(model.Check{Type: "smtp"}, Means{}); err == nil {
		t.Error("an unknown check: no error")
	}
}

func TestHealthQuestion(t *testing.T) {
	q := healthQuestion("web")
	if n := binary.BigEndian.Uint32(q[1:]); string(q[5:]) != "\x0a\x03web" || n != 5 {
		t.Errorf("it is %q", q)
	}
}
