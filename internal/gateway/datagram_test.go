package gateway_test

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// udpServer starts a server that sends back each datagram behind its name.
func udpServer(t *testing.T, name string) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteTo(append([]byte(name), b[:n]...), from) // the client fails by what it reads
			}
		}
	}()
	return c.LocalAddr().String()
}

// udpWorld is a gateway with the UDP entry point dns, and returns its port.
func udpWorld(t *testing.T, address string) (*world, string) {
	t.Helper()
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"},
		{Name: "dns", Address: address + "/udp", UDPTimeout: time.Hour}}})
	_, port, err := net.SplitHostPort(w.sockets["dns"].UDP.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return w, port
}

func (w *world) applyUDP(router *model.UDPRouter, addresses ...string) []status.Status {
	lb := &model.UDPLoadBalancer{}
	for _, a := range addresses {
		lb.Servers = append(lb.Servers, model.UDPServer{Address: a})
	}
	return w.gateway.Apply(&model.Config{UDP: model.UDP{Routers: map[string]*model.UDPRouter{"a@file": router,
		"b@file": router}, Services: map[string]*model.UDPService{"s@file": {LoadBalancer: lb}}}}, nil)
}

// exchange sends a datagram from a connected socket, which takes answers from no other address.
func exchangeUDP(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(place.Timeout))
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func dialUDP(t *testing.T, host, port string) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestUDP checks that clients of a wildcard socket get answers from the address that they used,
// in IPv4 and IPv6, that they keep their server, and that large and empty datagrams pass.
func TestUDP(t *testing.T) {
	w, port := udpWorld(t, ":0")
	one := udpServer(t, "one ")
	w.applyUDP(&model.UDPRouter{Service: "s@file"}, one)
	large := strings.Repeat("x", 60000)
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
		c := dialUDP(t, host, port)
		for _, text := range []string{"a", "", large} {
			if got := exchangeUDP(t, c, text); got != "one "+text {
				t.Errorf("%s: %d bytes return as %.20q", host, len(text), got)
			}
		}
	}
	kept := dialUDP(t, "127.0.0.1", port)
	exchangeUDP(t, kept, "a")
	w.applyUDP(&model.UDPRouter{Service: "s@file"}, udpServer(t, "two "))
	if got := exchangeUDP(t, kept, "a"); got != "one a" {
		t.Errorf("a session changes its server: %q", got)
	}
	if got := exchangeUDP(t, dialUDP(t, "127.0.0.1", port), "a"); got != "two a" {
		t.Errorf("a new session takes %q", got)
	}
}

// TestUDPStates checks that an entry point has one router, and why a second one is disabled.
func TestUDPStates(t *testing.T) {
	w, _ := udpWorld(t, "127.0.0.1:0")
	var reasons bytes.Buffer
	for _, s := range w.applyUDP(&model.UDPRouter{Service: "s@file"}, "127.0.0.1:1") {
		reasons.WriteString(s.Name + " " + string(s.State) + " " + strings.Join(s.Reasons, "; ") + "\n")
	}
	if got := reasons.String(); !strings.Contains(got, "a@file enabled") ||
		!strings.Contains(got, "b@file disabled entry point dns has the router a@file already") {
		t.Errorf("states:\n%s", got)
	}
}
