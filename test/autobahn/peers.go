package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"fairlead/internal/gateway/tunnel"

	"github.com/lxzan/gws"
)

// mostMessage is the size of the largest message, in bytes: those of the cases 9.* have 16 MiB.
const mostMessage = 32 << 20

// echo sends each message back.
type echo struct{ gws.BuiltinEventHandler }

// OnPing implements gws.Event.
func (echo) OnPing(c *gws.Conn, payload []byte) { _ = c.WritePong(payload) }

// OnMessage implements gws.Event.
func (echo) OnMessage(c *gws.Conn, m *gws.Message) {
	defer m.Close()
	_ = c.WriteMessage(m.Opcode, m.Bytes())
}

// deflate compresses short messages too: without context takeover the library sends those of less than
// 512 bytes uncompressed by default, and the cases 13.2, 13.5, 13.6 and 13.7 do not accept that.
var deflate = gws.PermessageDeflate{Enabled: true, ServerContextTakeover: true, ClientContextTakeover: true,
	Threshold: 1}

// serveEcho serves WebSocket until the listener is closed.
func serveEcho() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	upgrader := gws.NewUpgrader(echo{}, &gws.ServerOption{CheckUtf8Enabled: true, ReadMaxPayloadSize: mostMessage,
		PermessageDeflate: deflate})
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c, err := upgrader.Upgrade(w, r); err == nil {
				c.ReadLoop()
			}
		}))
	}()
	return l, nil
}

// addTLS listens without TLS and connects to the address with TLS: kosoku's client has none.
func addTLS(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				secure, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
				if err != nil {
					c.Close()
					return
				}
				tunnel.Join(c, secure, -1)
			}()
		}
	}()
	return l, nil
}

// answerCases is the client of all cases of a server, as Autobahn defines it: the server says how
// many there are, and writes its report at the end.
func answerCases(server string) error {
	count := make(chan int, 1)
	if err := visit(server+"/getCaseCount", &counter{count: count}); err != nil {
		return err
	}
	cases := 0
	select {
	case cases = <-count:
	default:
	}
	if cases == 0 {
		return errors.New("the server has no cases")
	}
	next := make(chan int)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range next {
				// A case may refuse the connection; its verdict says whether it should.
				_ = visit(fmt.Sprintf("%s/runCase?case=%d&agent=echo", server, i), echo{})
			}
		})
	}
	for i := 1; i <= cases; i++ {
		next <- i
	}
	close(next)
	all.Wait()
	return visit(server+"/updateReports?agent=echo", echo{})
}

// counter reads the number of cases.
type counter struct {
	gws.BuiltinEventHandler
	count chan int
}

// OnMessage implements gws.Event.
func (c *counter) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	if n, err := strconv.Atoi(string(m.Bytes())); err == nil {
		c.count <- n
	}
}

// visit opens a connection and handles its messages until it ends.
func visit(address string, handler gws.Event) error {
	conn, err := connect(address)
	if err != nil {
		return err
	}
	c, _, err := gws.NewClientFromConn(handler, &gws.ClientOption{Addr: address, CheckUtf8Enabled: true,
		ReadMaxPayloadSize: mostMessage, PermessageDeflate: deflate}, &offering{Conn: conn})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	c.ReadLoop()
	return nil
}

func connect(address string) (net.Conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "wss" {
		return tls.Dial("tcp", u.Host, &tls.Config{InsecureSkipVerify: true})
	}
	return net.Dial("tcp", u.Host)
}

// offering adds client_no_context_takeover (RFC 7692, 7.1.1.2) to what the client offers in its handshake:
// the cases 13.2, 13.5 and 13.6 are not run with clients that do not offer it. The library cannot offer it
// beside client_max_window_bits.
type offering struct {
	net.Conn
	offered bool
}

// Write implements net.Conn.
func (o *offering) Write(b []byte) (int, error) {
	if o.offered {
		return o.Conn.Write(b)
	}
	o.offered = true
	const bits = "client_max_window_bits"
	_, err := o.Conn.Write(bytes.Replace(b, []byte(bits), []byte(bits+"; client_no_context_takeover"), 1))
	return len(b), err
}
