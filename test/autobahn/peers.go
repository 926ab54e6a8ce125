package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
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

var deflate = gws.PermessageDeflate{Enabled: true, ServerContextTakeover: true, ClientContextTakeover: true}

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
func answerCases(url string) error {
	count := make(chan int, 1)
	if err := visit(url+"/getCaseCount", &counter{count: count}); err != nil {
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
				_ = visit(fmt.Sprintf("%s/runCase?case=%d&agent=echo", url, i), echo{})
			}
		})
	}
	for i := 1; i <= cases; i++ {
		next <- i
	}
	close(next)
	all.Wait()
	return visit(url+"/updateReports?agent=echo", echo{})
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
func visit(url string, handler gws.Event) error {
	c, _, err := gws.NewClient(handler, &gws.ClientOption{Addr: url, CheckUtf8Enabled: true,
		ReadMaxPayloadSize: mostMessage, PermessageDeflate: deflate,
		TlsConfig: &tls.Config{InsecureSkipVerify: true}})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", url, err)
	}
	c.ReadLoop()
	return nil
}
