package gateway_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	model "fairlead/internal/model/gateway"
)

// serverActs are what servers do; a request asks for one of them.
var serverActs = []string{"echo", "echo", "early", "early close", "close", "close late", "reset", "interim",
	"truncated", "bad chunk", "switch", "switch", "switch late", "continue", "slow", "error", "no http"}

// set remembers the servers for config.
func (p *pairs) set(services map[string]*model.Service, auth string) {
	p.services, p.auth = services, auth
	p.gateway.Apply(p.config(), nil)
}

// config returns a new configuration with the servers.
func (p *pairs) config() *model.Config {
	middlewares := map[string]*model.Middleware{
		"retry@file":     {Retry: &model.Retry{Attempts: 3, Status: []string{"503"}}},
		"buffering@file": {Buffering: &model.Buffering{MemRequestBodyBytes: 8 << 10, MemResponseBodyBytes: 1 << 10}},
		"auth@file":      {ForwardAuth: &model.ForwardAuth{Address: p.auth, ForwardBody: true}},
		"errors@file":    {Errors: &model.Errors{Status: []string{"500-599"}, Service: "page@file", Query: "/{status}"}},
		"grpcweb@file":   {GRPCWeb: &model.GRPCWeb{}},
		"chain@file": {Chain: &model.Chain{Middlewares: []string{"errors@file", "retry@file", "buffering@file",
			"auth@file", "grpcweb@file"}}},
	}
	routers := map[string]*model.Router{}
	for _, name := range pairsOf {
		r := model.Router{Rule: "PathPrefix(`/" + name + "`)", Service: name + "@file"}
		if p.services[r.Service] == nil {
			r.Service, r.Middlewares = "plain@file", []string{name + "@file"}
		}
		secure := r
		secure.TLS = &model.RouterTLS{}
		routers[name+"@file"], routers[name+"-tls@file"] = &r, &secure
	}
	return &model.Config{HTTP: model.HTTP{Routers: routers, Services: p.services, Middlewares: middlewares,
		ServersTransports: map[string]*model.ServersTransport{"t@file": {InsecureSkipVerify: true}}}}
}

// listen starts a server that does what each request asks for, and returns a service with it.
func (p *pairs) listen(certificates []tls.Certificate) *model.Service {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if certificates != nil {
		url = "https://" + l.Addr().String()
		l = tls.NewListener(l, &tls.Config{Certificates: certificates})
	}
	p.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return serviceOf(url)
}

func (p *pairs) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Minute))
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil || !p.act(c, in, r) {
			return
		}
	}
}

// act does what the request asks for. It returns whether the connection can be used again.
func (p *pairs) act(c net.Conn, in io.Reader, r *http.Request) bool {
	marker := r.Header.Get("X-Marker")
	seed, _ := strconv.ParseUint(r.Header.Get("X-Seed"), 10, 64)
	random := rand.New(rand.NewPCG(seed, 0))
	write := func(text string) { _, _ = io.WriteString(c, text) } // the gateway may be gone
	read := func() bool {
		_, err := io.Copy(io.Discard, &foreign{from: r.Body, marker: marker, wrong: p.wrong})
		return err == nil
	}
	answer := response(random, marker, 200)
	switch r.Header.Get("X-Server") {
	case "early", "early close":
		write(answer)
		return r.Header.Get("X-Server") == "early" && read()
	case "close":
		return false
	case "close late":
		read()
		return false
	case "reset":
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		return false
	case "interim":
		for range random.IntN(5) {
			write("HTTP/1.1 103 Early Hints\r\nX-Marker: " + marker + "\r\n\r\n")
		}
	case "continue":
		write("HTTP/1.1 100 Continue\r\n\r\n")
	case "truncated":
		write(answer[:random.IntN(len(answer))])
		return false
	case "bad chunk":
		write("HTTP/1.1 200 OK\r\nX-Marker: " + marker + "\r\nTransfer-Encoding: chunked\r\n\r\n")
		write("8\r\n" + marker + "\r\nzz\r\n")
		return false
	case "switch":
		p.switched(c, in, random, marker)
		return false
	case "switch late":
		if read() {
			p.switched(c, in, random, marker)
		}
		return false
	case "slow":
		for _, piece := range split(random, []byte(answer)) {
			write(string(piece))
			p.pause(random, 2)
		}
		return read()
	case "error":
		answer = response(random, marker, []int{500, 503}[random.IntN(2)])
	case "no http":
		write("not HTTP\r\n\r\n")
		return false
	}
	if !read() {
		return false
	}
	write(answer)
	return true
}

// response returns a response of the marker.
func response(random *rand.Rand, marker string, status int) string {
	body := filled(marker, []int{0, 8, 3000, 100 << 10}[random.IntN(4)])
	head := fmt.Sprintf("HTTP/1.1 %d Status\r\nX-Marker: %s\r\n", status, marker)
	if random.IntN(2) == 0 {
		return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	}
	return head + "Transfer-Encoding: chunked\r\n\r\n" + chunkedBody(body, 1+len(body)/1000+random.IntN(5000))
}

func chunkedBody(body []byte, size int) string {
	var text []byte
	for len(body) > 0 {
		n := min(size, len(body))
		text = fmt.Appendf(text, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return string(text) + "0\r\n\r\n"
}

// switched changes the protocol, and sends bytes of the marker while it reads until the end.
func (p *pairs) switched(c net.Conn, in io.Reader, random *rand.Rand, marker string) {
	_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n"+
		"X-Marker: %s\r\n\r\n%s", marker, filled(marker, random.IntN(50<<10)))
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, in) // until the gateway ends the other direction
}

// handle is a server of HTTP/2.
func (p *pairs) handle(w http.ResponseWriter, r *http.Request) {
	marker := r.Header.Get("X-Marker")
	w.Header().Set("X-Marker", marker)
	switch r.Header.Get("X-Server") {
	case "close", "reset", "no http":
		panic(http.ErrAbortHandler)
	case "early", "early close", "switch":
		_, _ = w.Write(filled(marker, 5000))
		return
	case "truncated", "bad chunk":
		_, _ = w.Write(filled(marker, 5000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, err := io.Copy(w, &foreign{from: r.Body, marker: marker, wrong: p.wrong})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// authenticate accepts each request whose body is its own.
func (p *pairs) authenticate(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, &foreign{from: r.Body, marker: r.Header.Get("X-Marker"), wrong: p.wrong})
}
