package dashboard_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/frontend/dashboard/access"
)

// TestForeignHostsAndOrigins: a site whose name resolves to this host (DNS rebinding) and a site that sends requests with the
// reader's browser get nothing, and a link to a page works.
func TestForeignHostsAndOrigins(t *testing.T) {
	f := newFake(t, values(time.Now()))
	l, token := local(t, f, false)
	at := "http://" + l.Addr().String()
	_, cookie := enter(t, at+"/"+token.Query())
	for _, c := range []struct {
		headers []string
		want    int
	}{
		{nil, 200},
		{[]string{"Host", "evil.example:80"}, 421},
		{[]string{"Host", "localhost.evil.example"}, 421},
		{[]string{"Host", "127.0.0.1.evil.example"}, 421},
		{[]string{"Host", "localhost:1"}, 200},
		{[]string{"Host", "[::1]:9090"}, 200},
		{[]string{"Origin", "http://evil.example"}, 403},
		{[]string{"Origin", "null"}, 403},
		{[]string{"Origin", at}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{[]string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 200},
	} {
		answer, text := get(t, at+"/services", append([]string{"Cookie", cookie}, c.headers...)...)
		if answer.StatusCode != c.want {
			t.Errorf("%q: %s, want %d", c.headers, answer.Status, c.want)
		}
		if c.want != 200 && strings.Contains(text, "10.0.0.3") {
			t.Errorf("%q: the refusal has the page", c.headers)
		}
	}
}

// local serves a dashboard with a one-time token.
func local(t *testing.T, f *fake, actions bool) (*access.Listener, *access.OneTime) {
	t.Helper()
	l, token, err := access.ListenLocal("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, f, actions)
	return l, token
}

// serve serves a dashboard until the test ends.
func serve(t *testing.T, l *access.Listener, f *fake, actions bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	d := dashboard.New(dashboard.Options{Daemon: admin.NewClient(f.socket), Host: &room{}, Actions: actions,
		Who: access.Who, Log: slog.New(slog.DiscardHandler)})
	go func() { ended <- l.Serve(ctx, d) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// enter opens a URL and returns the answer and the cookie that it sets.
func enter(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	answer, _ := get(t, url, headers...)
	return answer, cookieOf(answer)
}

func cookieOf(answer *http.Response) string {
	for _, c := range answer.Cookies() {
		return c.Name + "=" + c.Value
	}
	return ""
}

// TestOneTimeToken: the token of `fairlead dashboard` lets in one browser, once, with a cookie that scripts and other
// sites do not get.
func TestOneTimeToken(t *testing.T) {
	f := newFake(t, values(time.Now()))
	l, token := local(t, f, false)
	at := "http://" + l.Addr().String()
	for _, query := range []string{"", "?token=", "?token=guess", "?token=" + strings.Repeat("A", 26),
		token.Query()[:len(token.Query())-1]} {
		if answer, cookie := enter(t, at+"/"+query); answer.StatusCode != 403 || cookie != "" {
			t.Errorf("%q: %s", query, answer.Status)
		}
	}
	answer, cookie := enter(t, at+"/"+token.Query())
	if answer.StatusCode != http.StatusSeeOther || len(answer.Cookies()) != 1 {
		t.Fatalf("the token: %s", answer.Status)
	}
	if c := answer.Cookies()[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", c)
	}
	if answer, _ := get(t, at+"/services", "Cookie", cookie); answer.StatusCode != 200 {
		t.Errorf("with the cookie: %s", answer.Status)
	}
	if answer, again := enter(t, at+"/"+token.Query()); answer.StatusCode != 403 || again != "" {
		t.Errorf("the token a second time: %s", answer.Status)
	}
	other, _ := local(t, f, false)
	if answer, _ := get(t, "http://"+other.Addr().String()+"/", "Cookie", cookie); answer.StatusCode != 403 {
		t.Errorf("the cookie at another process: %s", answer.Status)
	}
	for _, path := range []string{"/", "/stream?page=/", "/services"} {
		if answer, _ := get(t, at+path, "Cookie", cookie[:len(cookie)-1]+"x"); answer.StatusCode != 403 {
			t.Errorf("%s with a changed cookie: %s", path, answer.Status)
		}
	}
}

// TestHeaders: each answer keeps the page from other sites, scripts of others and caches, and assets stay in caches.
func TestHeaders(t *testing.T) {
	f := newFake(t, values(time.Now()))
	at := served(t, f, nil)
	for _, path := range append(pages, "/nothing", "/stream?page=/nothing") {
		answer, _ := get(t, at.URL+path)
		h := answer.Header
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") ||
			!strings.Contains(policy, "frame-ancestors 'none'") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Referrer-Policy") != "same-origin" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, h)
		}
	}
	_, text := get(t, at.URL+"/")
	sum := 0
	for _, part := range strings.Split(text, `"`) {
		if !strings.HasPrefix(part, "/asset/") {
			continue
		}
		answer, body := get(t, at.URL+part, "Accept-Encoding", "gzip")
		sum += len(body)
		if answer.StatusCode != 200 || !strings.Contains(answer.Header.Get("Cache-Control"), "immutable") ||
			answer.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %s %v", part, answer.Status, answer.Header)
		}
	}
	_, zipped := get(t, at.URL+"/services", "Accept-Encoding", "gzip")
	if sum += len(zipped); sum > 60<<10 {
		t.Errorf("the first view has %d bytes", sum)
	}
}

// tlsDashboard serves a dashboard with TLS. The certificate is for 127.0.0.1 and host1.
func tlsDashboard(t *testing.T, f *fake, change func(dir string, o *access.Options)) (at string, roots *x509.CertPool,
	o access.Options) {
	t.Helper()
	dir := t.TempDir()
	writePair(t, dir, "host1")
	o = access.Options{Address: "127.0.0.1:0", Certificate: filepath.Join(dir, "chain.pem"),
		Key: filepath.Join(dir, "key.pem")}
	change(dir, &o)
	l, err := access.Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, f, false)
	text, err := os.ReadFile(o.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return l.Addr().String(), roots, o
}

// writePair writes a certificate for a name and 127.0.0.1, which signs itself, and its key.
func writePair(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"chain.pem": {Type: "CERTIFICATE", Bytes: der},
		"key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// client returns a client for a dashboard with TLS.
func client(roots *x509.CertPool, most uint16, own ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MaxVersion: most,
		Certificates: own}}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// TestStoredToken: a token opens the dashboard, its file has only a hash, guesses are slowed down, and a token that is
// deleted from the file is refused at once.
func TestStoredToken(t *testing.T) {
	f := newFake(t, values(time.Now()))
	var token string
	at, roots, o := tlsDashboard(t, f, func(dir string, o *access.Options) {
		o.Tokens = filepath.Join(dir, "tokens")
		var err error
		if token, err = access.AddToken(o.Tokens, "alice"); err != nil {
			t.Fatal(err)
		}
	})
	stored, err := os.ReadFile(o.Tokens)
	if err != nil || strings.Contains(string(stored), token) || !strings.HasPrefix(string(stored), "alice ") {
		t.Errorf("the file has %q, %v", stored, err)
	}
	if _, err := access.AddToken(o.Tokens, "alice"); err == nil {
		t.Error("a second token of the same name is added")
	}
	c := client(roots, 0)
	ask := func(bearer, cookie string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/services", nil)
		if err != nil {
			t.Fatal(err)
		}
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		r.Header.Set("Cookie", cookie)
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		if open := strings.Contains(string(text), "10.0.0.3"); open != (answer.StatusCode == 200) {
			t.Errorf("%s: the page is shown: %v", answer.Status, open)
		}
		return answer.StatusCode
	}
	if got := ask("", ""); got != 401 {
		t.Errorf("without a token: %d", got)
	}
	if got := ask(token, ""); got != 200 {
		t.Errorf("with the token: %d", got)
	}
	login, err := c.PostForm("https://"+at+"/login", url.Values{"token": {token}})
	if err != nil {
		t.Fatal(err)
	}
	login.Body.Close()
	cookie := cookieOf(login)
	if got := ask("", cookie); got != 200 {
		t.Errorf("after the form: %d, cookie %q", got, cookie)
	}
	if c := login.Cookies(); len(c) != 1 || !c[0].Secure || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", c)
	}
	for i := range 5 {
		if got := ask(fmt.Sprint("guess", i), ""); got != 401 {
			t.Errorf("guess %d: %d", i, got)
		}
	}
	if got := ask(token, ""); got != 429 {
		t.Errorf("after five guesses, the token itself: %d", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/stream?page=/services", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie)
	stream, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if err := os.WriteFile(o.Tokens, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ask("", cookie); got != 401 {
		t.Errorf("after the token was deleted: %d", got)
	}
	if _, err := access.AddToken(o.Tokens, "alice"); err != nil {
		t.Fatal(err)
	}
	if got := ask("", cookie); got != 401 {
		t.Errorf("after the token was replaced by another one of the same name: %d", got)
	}
	_, _ = io.Copy(io.Discard, stream.Body) // the stream ends
}

// TestAddToken: the first token creates the file's directory, and a further one does not damage a file whose last line
// an editor has left without an end.
func TestAddToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "etc", "tokens")
	if _, err := access.AddToken(file, "alice"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.TrimSpace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := access.AddToken(file, "bob"); err != nil {
		t.Fatal(err)
	}
	if _, err := access.NewStored(file); err != nil {
		t.Error(err)
	}
}

// TestTLS: only TLS 1.3, only clients with a certificate of the authority, and only the names of the certificate.
func TestTLS(t *testing.T) {
	f := newFake(t, values(time.Now()))
	clients := t.TempDir()
	writePair(t, clients, "alice")
	own, err := tls.LoadX509KeyPair(filepath.Join(clients, "chain.pem"), filepath.Join(clients, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	at, roots, _ := tlsDashboard(t, f, func(_ string, o *access.Options) {
		o.ClientCA = filepath.Join(clients, "chain.pem")
	})
	status := func(c *http.Client, host string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/services", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := c.Do(r)
		if err != nil {
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for name, got := range map[string][2]int{
		"a client with its certificate":    {status(client(roots, 0, own), at), 200},
		"a client without":                 {status(client(roots, 0), at), 0},
		"a client of TLS 1.2":              {status(client(roots, tls.VersionTLS12, own), at), 0},
		"a request for a foreign name":     {status(client(roots, 0, own), "evil.example"), 421},
		"a request for a name of the host": {status(client(roots, 0, own), "host1:443"), 200},
		"a request for localhost":          {status(client(roots, 0, own), "localhost"), 421},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", name, got[0], got[1])
		}
	}
}

// TestRenewedCertificate: a certificate that is replaced is served without a restart. If the new one cannot be used,
// the earlier one is served, and the reason is reported once.
func TestRenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, "first.example")
	chain, key := filepath.Join(dir, "chain.pem"), filepath.Join(dir, "key.pem")
	l, err := access.Listen(access.Options{Address: "127.0.0.1:0", Certificate: chain, Key: key, ClientCA: chain})
	if err != nil {
		t.Fatal(err)
	}
	var reported []error
	l.OnKept(func(err error) { reported = append(reported, err) })
	serve(t, l, newFake(t, values(time.Now())), false)
	age := time.Hour
	shown := func() string {
		t.Helper()
		age -= time.Minute // the files are older than a moment, and differ from those before
		for _, file := range []string{chain, key} {
			if err := os.Chtimes(file, time.Now(), time.Now().Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if got := shown(); got != "first.example" {
		t.Errorf("the first certificate is that of %s", got)
	}
	writePair(t, dir, "second.example")
	if got := shown(); got != "second.example" {
		t.Errorf("after the renewal, the certificate is that of %s", got)
	}
	if err := os.WriteFile(key, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := shown(); got != "second.example" || len(reported) != 1 {
		t.Errorf("with a broken key, the certificate is that of %s, and %v is reported", got, reported)
	}
	writePair(t, dir, "third.example")
	if got := shown(); got != "third.example" || len(reported) != 1 {
		t.Errorf("after the repair, the certificate is that of %s, and %v is reported", got, reported)
	}
}

// TestUnsafeAddresses: no option serves the dashboard to strangers.
func TestUnsafeAddresses(t *testing.T) {
	for _, o := range []access.Options{{Address: "127.0.0.1:0"}, {Address: "0.0.0.0:9443"}, {Address: ":9443"},
		{Address: "192.0.2.1:9443", Certificate: "c", Key: "k"}, {Address: "192.0.2.1:9443", Tokens: "t"},
		{Address: "unix:"}, {Address: "host1:9443"}, {Address: "unix:/x", Tokens: "t"}, {Group: "adm"},
		{Address: "192.0.2.1:9443", Certificate: "c", Key: "k", Tokens: "t", Group: "adm"}, {Tokens: "t"}} {
		if err := o.Check(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	for _, address := range []string{"0.0.0.0:0", "192.0.2.1:0", "127.0.0.1", "host1:0"} {
		if l, _, err := access.ListenLocal(address); err == nil {
			l.Close()
			t.Errorf("%s is accepted without TLS", address)
		}
	}
}

// TestUnixSocket: only its owner can use the socket, and only under a name of loopback.
func TestUnixSocket(t *testing.T) {
	f := newFake(t, values(time.Now()))
	path := filepath.Join(t.TempDir(), "d.sock")
	l, err := access.Listen(access.Options{Address: "unix:" + path})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, f, false)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	for host, want := range map[string]int{"localhost:9090": 200, "evil.example": 421} {
		answer, err := c.Get("http://" + host + "/services")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s", host, answer.Status)
		}
	}
}

// TestStrangersCannotKeepConnections: clients without a credential that send no body, or nothing after an answer,
// take all connections. The dashboard closes them, and a reader is let in.
func TestStrangersCannotKeepConnections(t *testing.T) {
	t.Parallel()
	f := newFake(t, values(time.Now()))
	var token string
	at, roots, _ := tlsDashboard(t, f, func(dir string, o *access.Options) {
		o.Tokens = filepath.Join(dir, "tokens")
		var err error
		if token, err = access.AddToken(o.Tokens, "alice"); err != nil {
			t.Fatal(err)
		}
	})
	requests := []string{"POST /login HTTP/1.1\r\nHost: host1\r\nContent-Length: 9\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: host1\r\nContent-Length: 9\r\n\r\n", "GET / HTTP/1.1\r\nHost: host1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"}
	for i := range 128 {
		conn, err := tls.Dial("tcp", at, &tls.Config{RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, requests[i%len(requests)]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/services", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	c := client(roots, 0)
	c.Timeout = time.Minute
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("a reader gets %s", answer.Status)
	}
}

// TestUnixConnectionsAreLimited: a user of the socket's group cannot use up the daemon's file descriptors, and the
// log names the user.
func TestUnixConnectionsAreLimited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	l, err := access.Listen(access.Options{Address: "unix:" + path})
	if err != nil {
		t.Fatal(err)
	}
	for range 129 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	want := fmt.Sprintf("user %d, process %d", os.Getuid(), os.Getpid())
	for range 128 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.RemoteAddr().String(); got != want {
			t.Fatalf("the connection is from %q, want %q", got, want)
		}
	}
	accepted := make(chan error)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	l.Close()
	if err := <-accepted; err == nil {
		t.Error("connection 129 is accepted")
	}
}

// TestStrangersDoNotFillTheLog: what any host can send to the port leaves no line in the daemon's log.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	var logged bytes.Buffer
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	at, _, _ := tlsDashboard(t, newFake(t, values(time.Now())), func(dir string, o *access.Options) {
		o.Tokens = filepath.Join(dir, "tokens")
		if _, err := access.AddToken(o.Tokens, "alice"); err != nil {
			t.Fatal(err)
		}
	})
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "this is no TLS\n\n"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn) // until the server closes the connection
	if logged.Len() > 0 {
		t.Errorf("the log has %q", logged.String())
	}
}
