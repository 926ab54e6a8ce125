package gateway_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"fairlead/test/place"

	"golang.org/x/net/websocket"
)

func twoNetworks(x *example) {
	x.until(200, "GET", "http://app.example.com/")
	// The gateway would time out if it took an address of the network backend.
	began := time.Now()
	answer, _ := x.until(503, "GET", "http://admin.example.com/")
	if answer.Header.Get("Retry-After") == "" || time.Since(began) > 30*time.Second {
		x.Errorf("admin: %v after %v", answer.Header, time.Since(began))
	}
	x.wantLog("two-networks_gateway_1", "the gateway shares no network with the container")
	x.patiently(func() (bool, string) {
		health := x.docker("inspect", "--format", "{{.State.Health.Status}}", "two-networks_gateway_1")
		return health == "healthy", "the gateway is " + health
	})
}

// errors returns what the container has written to its standard error.
func (x *example) errors(container string) string {
	var out strings.Builder
	cmd := x.engine.Docker(x.Context(), "logs", container)
	cmd.Stderr = &out
	_ = cmd.Run() // the container may be gone
	return out.String()
}

func basicAuth(x *example) {
	const url = "http://whoami.example.com/"
	login := func(pair string) []string {
		return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))}
	}
	answer, _ := x.until(401, "GET", url)
	if got := answer.Header.Get("WWW-Authenticate"); got != `Basic realm="Members"` {
		x.Errorf("WWW-Authenticate: %s", got)
	}
	x.want(200, "X-Auth-User: ann", "GET", url, login("ann:correct")...)
	x.want(200, "X-Auth-User: bob", "GET", url, login("bob:horse")...)
	x.want(401, "", "GET", url, login("ann:horse")...)
	x.want(401, "", "GET", url, login("eve:correct")...)
	// The server gets the name, and neither the password nor a name that the client claims.
	_, body := x.ask("GET", url, append(login("ann:correct"), "X-Auth-User", "root")...)
	if strings.Contains(body, "root") || strings.Contains(body, "Authorization") {
		x.Errorf("the server gets:\n%s", body)
	}
}

func v2Rules(x *example) {
	x.until(200, "GET", "http://shop.example.com/")
	x.until(200, "GET", "http://acme.tenants.example.com/")
	x.until(200, "GET", "http://api.example.com/v1/")
	for _, url := range []string{"http://shop.example.com/", "http://www.example.com/"} {
		x.want(200, "Name: shop", "GET", url)
	}
	x.want(200, "Name: tenants", "GET", "http://globex.tenants.example.com/")
	x.want(404, "", "GET", "http://a1.tenants.example.com/")
	x.want(200, "Name: api", "GET", "http://api.example.com/v22/x")
	x.want(404, "", "GET", "http://api.example.com/vx/")
	x.want(404, "", "GET", "http://api.example.com/")
	x.want(200, "Name: api", "GET", "http://api.example.com/", "X-Beta", "yes")
	x.want(404, "", "GET", "http://api.example.com/", "X-Beta", "no")
	x.want(200, "Name: api", "GET", "http://api.example.com/?beta=1")
	x.want(200, "Name: api", "GET", "http://api.example.com/items/7")
	x.want(404, "", "POST", "http://api.example.com/items/7")
	x.want(404, "", "GET", "http://api.example.com/items/seven")
}

func stickySessions(x *example) {
	const url = "http://app.example.com/"
	x.until(200, "GET", url)
	replicas := map[string]string{}
	for end := time.Now().Add(time.Minute); len(replicas) < 3 && time.Now().Before(end); {
		answer, body := x.ask("GET", url)
		c := answer.Cookies()
		if len(c) != 1 || c[0].Name != "replica" || !c[0].HttpOnly || c[0].SameSite != http.SameSiteLaxMode {
			x.Fatalf("cookies: %v", c)
		}
		replicas[hostname(body)] = c[0].Value
	}
	if len(replicas) != 3 {
		x.Fatalf("clients without cookie reach %v, want 3 replicas", replicas)
	}
	for name, cookie := range replicas {
		for range 5 {
			if answer, body := x.ask("GET", url, "Cookie", "replica="+cookie); hostname(body) != name ||
				len(answer.Cookies()) != 0 {
				x.Errorf("cookie %s of %s: %s, %v", cookie, name, body, answer.Cookies())
			}
		}
		// Without its replica, the client gets another one, and its cookie.
		x.docker("kill", name)
		for end := time.Now().Add(time.Minute); ; {
			answer, body := x.ask("GET", url, "Cookie", "replica="+cookie)
			if answer.StatusCode == 200 && hostname(body) != name && len(answer.Cookies()) == 1 {
				return
			}
			if time.Now().After(end) {
				x.Fatalf("after the end of %s: %s %s", name, answer.Status, body)
			}
		}
	}
}

func hostname(body string) string {
	_, rest, _ := strings.Cut(body, "Hostname: ")
	name, _, _ := strings.Cut(rest, "\n")
	return name
}

func forwardAuth(x *example) {
	const url = "http://whoami.example.com/cart?n=1"
	answer, _ := x.until(307, "GET", url)
	if got := answer.Header.Get("Location"); got != "https://accounts.example.com/?for=whoami.example.com/cart?n=1" {
		x.Errorf("Location: %s", got)
	}
	x.want(200, "X-Forwarded-User: ann", "GET", url, "Cookie", "_forward_auth=ann")
	x.want(307, "", "GET", url, "Cookie", "_forward_auth=eve", "X-Forwarded-User", "ann")
	if _, body := x.ask("GET", url, "Cookie", "_forward_auth=ann", "X-Forwarded-User", "root"); strings.Contains(body,
		"root") {
		x.Errorf("the server believes the client's own header:\n%s", body)
	}
}

func wildcardCertificate(x *example) {
	for _, name := range []string{"one", "two"} {
		answer, body := x.until(200, "GET", "https://"+name+".example.com/")
		if !strings.Contains(body, "Name: "+name) || answer.ProtoMajor != 2 ||
			answer.Header.Get("Strict-Transport-Security") != "max-age=31536000; includeSubDomains" {
			x.Errorf("%s: %v %s", name, answer, body)
		}
	}
	answer, _ := x.ask("GET", "http://one.example.com/cart")
	if got := answer.Header.Get("Location"); answer.StatusCode != 302 && answer.StatusCode != 301 &&
		answer.StatusCode != 308 || got != "https://one.example.com/cart" {
		x.Errorf("http: %s to %q", answer.Status, got)
	}
	// sniStrict refuses names without a certificate.
	conn, err := x.dial(":443")
	if err != nil {
		x.Fatal(err)
	}
	defer conn.Close()
	other := tls.Client(conn, &tls.Config{ServerName: "example.org", InsecureSkipVerify: true})
	if err := other.Handshake(); err == nil {
		x.Error("a client gets a certificate for another name than it asks for")
	}
}

func tcpSNI(x *example) {
	for name, certificate := range map[string]string{"web": "*.example.com", "vault": "vault.example.com"} {
		answer, body := x.until(200, "GET", "https://"+name+".example.com/")
		if got := answer.TLS.PeerCertificates[0].DNSNames[0]; got != certificate ||
			!strings.Contains(body, "Name: "+name) || strings.Contains(body, "X-Forwarded-For") != (name == "web") {
			x.Errorf("%s: the certificate is for %s, the answer is %s", name, got, body)
		}
	}
	const accepted = "\x20\x02\x00\x00" // CONNACK (MQTT 3.1.1, 3.2)
	connect := func(name string, wait time.Duration) (answer []byte, err error) {
		conn, err := x.dial(":8883")
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		secure := tls.Client(conn, &tls.Config{ServerName: name, RootCAs: x.roots})
		_ = secure.SetDeadline(time.Now().Add(wait))
		if _, err := secure.Write([]byte("\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")); err != nil {
			return nil, err
		}
		answer = make([]byte, 4)
		_, err = io.ReadFull(secure, answer)
		return answer, err
	}
	x.patiently(func() (bool, string) {
		answer, err := connect("mqtt.example.com", place.Timeout)
		return err == nil && string(answer) == accepted, fmt.Sprintf("mqtt: %x %v", answer, err)
	})
	// The gateway waits for the rest of an HTTP request.
	if answer, _ := connect("other.example.com", 3*time.Second); string(answer) == accepted {
		x.Error("a client gets the server of another name than it asks for")
	}
}

func severalPorts(x *example) {
	x.until(200, "GET", "http://s3.example.com/bucket")
	x.want(200, "api /bucket", "GET", "http://s3.example.com/bucket")
	x.want(200, "console /users /ui", "GET", "http://s3.example.com:9001/ui/users")
	x.want(404, "", "GET", "http://s3.example.com:9001/bucket")
	x.want(200, "api /ui/users", "GET", "http://s3.example.com/ui/users")
}

func webSocket(x *example) {
	x.until(200, "GET", "http://chat.example.com/")
	open := func() *websocket.Conn {
		conn, err := x.dial(":80")
		if err != nil {
			x.Fatal(err)
		}
		config, err := websocket.NewConfig("ws://chat.example.com/echo", "http://chat.example.com/")
		if err != nil {
			x.Fatal(err)
		}
		ws, err := websocket.NewClient(config, conn)
		if err != nil {
			x.Fatal(err)
		}
		x.Cleanup(func() { ws.Close() })
		return ws
	}
	echo := func(ws *websocket.Conn, text string) {
		if err := websocket.Message.Send(ws, text); err != nil {
			x.Fatal(err)
		}
		var got string
		if err := websocket.Message.Receive(ws, &got); err != nil || got != text {
			x.Errorf("%.20q, %v, want %.20q", got, err, text)
		}
	}
	first, second := open(), open()
	echo(first, "hello")
	echo(second, strings.Repeat("large", 50_000))
	// The connections count for the limit of two requests, until they end.
	x.want(429, "", "GET", "http://chat.example.com/")
	// A change of the configuration does not end them.
	x.docker("run", "-d", "--name", "other", "--network", "websocket_default", "--label", "traefik.enable=true",
		"--label", "traefik.http.routers.other.rule=Host(`other.example.com`)", "traefik/whoami")
	x.Cleanup(func() { _, _ = x.engine.Run(x.T.Context(), "rm", "--force", "other") })
	x.until(200, "GET", "http://other.example.com/")
	echo(first, "after the change")
	x.docker("rm", "--force", "other")
	second.Close()
	x.until(200, "GET", "http://chat.example.com/")
}

func grpc(x *example) {
	const server = "https://grpcb.in/grpcbin.GRPCBin/"
	x.roots = nil // the certificate is the gateway's own
	client := x.client()
	client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	message := func(text string) []byte { return append([]byte{0, 0, 0, 0, byte(len(text))}, text...) }
	call := func(method string, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequest(http.MethodPost, server+method, body)
		if err != nil {
			x.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("TE", "trailers")
		return client.Do(r)
	}
	var answer *http.Response
	x.patiently(func() (bool, string) {
		var err error
		answer, err = call("DummyUnary", bytes.NewReader(message("one")))
		return err == nil && answer.StatusCode == 200, fmt.Sprint(answer, err)
	})
	got, err := io.ReadAll(answer.Body)
	if err != nil || !bytes.Equal(got, message("one")) || answer.Trailer.Get("Grpc-Status") != "0" ||
		answer.ProtoMajor != 2 {
		x.Errorf("unary: %q %v %v", got, err, answer)
	}
	// A stream: each message is answered before the next is sent.
	in, out := io.Pipe()
	stream, err := call("DummyBidirectionalStreamStream", in)
	if err != nil {
		x.Fatal(err)
	}
	defer stream.Body.Close()
	for _, text := range []string{"one", "two", "three"} {
		if _, err := out.Write(message(text)); err != nil {
			x.Fatal(err)
		}
		part := make([]byte, 5+len(text))
		if _, err := io.ReadFull(stream.Body, part); err != nil || !bytes.Equal(part, message(text)) {
			x.Errorf("stream: %q %v", part, err)
		}
	}
	out.Close()
	if rest, err := io.ReadAll(stream.Body); err != nil || len(rest) > 0 || stream.Trailer.Get("Grpc-Status") != "0" {
		x.Errorf("end of the stream: %q %v %v", rest, err, stream.Trailer)
	}
	if failed, err := call("SpecificError", nil); err != nil || failed.Header.Get("Grpc-Status") != "5" {
		x.Errorf("error: %v %v", failed, err)
	}
}
