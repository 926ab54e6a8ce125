package member_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// TestPlaces opens connections from many hosts. They must not take the places of nodes, and a /64 of IPv6
// has those of one host. At the address of a node, only new connections without a proof replace others.
func TestPlaces(t *testing.T) {
	node := netip.MustParseAddr("192.0.2.7")
	proving := member.NewPlaces(func(a netip.Addr) bool { return a == node })
	replaced := 0
	places := func(a netip.Addr) (func(), bool) { return proving(a, "", func() { replaced++ }) }
	all := 0
	for i := range 10_000 {
		if _, ok := places(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))); ok {
			all++
		}
	}
	if all != 8 {
		t.Errorf("one /64 has %d connections", all)
	}
	var leave func()
	for i := range 10_000 {
		done, ok := places(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}))
		if ok {
			all, leave = all+1, done
		}
	}
	if all != 128 {
		t.Errorf("all strangers have %d connections", all)
	}
	if replaced > 0 {
		t.Errorf("%d connections of strangers were replaced", replaced)
	}
	for n := range 100 {
		if _, ok := places(netip.MustParseAddr("::ffff:192.0.2.7")); !ok {
			t.Errorf("connection %d of the address of a node is refused", n+1)
		}
	}
	if replaced != 92 {
		t.Errorf("of 100 connections without a proof, %d were replaced", replaced)
	}
	for n := range 33 {
		_, ok := proving(node, "node7", func() { t.Error("a connection of a node is replaced") })
		if ok != (n < 32) {
			t.Errorf("connection %d of a node: %v", n+1, ok)
		}
	}
	for range 100 {
		places(node)
	}
	stranger := netip.MustParseAddr("203.0.113.1")
	if _, ok := places(stranger); ok {
		t.Error("a stranger has a place that is taken")
	}
	leave()
	leave()
	if _, ok := places(stranger); !ok {
		t.Error("a stranger does not get a free place")
	}
	if _, ok := places(stranger); ok {
		t.Error("a place that was left once is free twice")
	}
}

// TestIdleConnections opens connections from the address of a node that send nothing, as a container of its host can
// do. The node must still reach the other one, and its connections stay.
func TestIdleConnections(t *testing.T) {
	w := newWorld(t)
	one, two, _ := w.three()
	pair, err := member.StoredCertificate(two.dir)
	if err != nil {
		t.Fatal(err)
	}
	kept := &http.Client{Transport: &http.Transport{DialContext: two.dial, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}}
	reused := func() (again bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(c httptrace.GotConnInfo) { again = c.Reused }})
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://192.0.2.1:7947/v1/ping",
			strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := kept.Do(r)
		if err != nil {
			t.Fatalf("a node with idle connections at its address: %v", err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("a node with idle connections at its address: %s, %v", answer.Status, err)
		}
		return again
	}
	reused()
	for range 100 {
		c, err := two.dial(t.Context(), "tcp", "192.0.2.1:7947")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if !reused() {
		t.Error("idle connections at the node's address have replaced one of the node")
	}
	for range 10 {
		if _, err := two.Ping(t.Context(), one.id()); err != nil {
			t.Fatalf("a new connection of the node: %v", err)
		}
	}
}

// patient is a connection that opens others before it sends its second message.
type patient struct {
	net.Conn
	writes int
	others func()
}

// Write implements net.Conn.
func (p *patient) Write(b []byte) (int, error) {
	if p.writes++; p.writes == 2 {
		p.others()
	}
	return p.Conn.Write(b)
}

// TestConnectionsDuringAHandshake opens many connections from the address of a node while the node's own connection is
// between its first message and its proof, as a container behind that address can do. They do not end that connection.
func TestConnectionsDuringAHandshake(t *testing.T) {
	w := newWorld(t)
	one, two, _ := w.three()
	flood := func() error {
		var all []net.Conn
		for range 20 {
			c, err := two.dial(t.Context(), "tcp", "192.0.2.1:7947")
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
			if _, err := c.Write([]byte{22, 3, 1}); err != nil { // the beginning of a ClientHello
				return err
			}
			all = append(all, c)
		}
		for _, c := range all[:12] { // they have places until others replace them
			if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
				return err
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("read from a connection that others replace: %v", err)
			}
		}
		return nil
	}
	flooded := make(chan error, 1)
	two.mu.Lock()
	two.around = func(c net.Conn) net.Conn { return &patient{Conn: c, others: func() { flooded <- flood() }} }
	two.mu.Unlock()
	if _, err := two.Ping(t.Context(), one.id()); err != nil {
		t.Errorf("a node beside other connections from its address: %v", err)
	}
	select {
	case err := <-flooded:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("the other connections were not opened")
	}
}

// TestServerName reads the server name of ClientHellos, and of each beginning of one.
func TestServerName(t *testing.T) {
	for _, want := range []string{"", "fairlead.example.org"} {
		client, server := net.Pipe()
		defer client.Close()
		go tls.Client(client, &tls.Config{ServerName: want, InsecureSkipVerify: true}).Handshake() // it does not end
		hello := make([]byte, 4096)
		n, err := server.Read(hello)
		if err != nil {
			t.Fatal(err)
		}
		hello = hello[:n]
		if got := member.ServerName(hello); got != want {
			t.Errorf("the server name is %q, want %q", got, want)
		}
		const enough = 300
		for i := range hello {
			if got := member.ServerName(hello[:i]); got != want && (got != "" || i >= enough) {
				t.Errorf("the server name in the first %d bytes is %q, want %q", i, got, want)
			}
			random := bytes.Clone(hello)
			random[i] ^= 0xff
			member.ServerName(random) // it must not panic
		}
	}
}

// TestUnknownTokens joins with many unknown tokens. They cost few transactions, and a host with a token
// that the node knows joins meanwhile.
func TestUnknownTokens(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	reads := 0
	w.mu.Lock()
	w.still = time.Now() // the budget of requests does not grow meanwhile
	one.committing = func(t kv.Txn) {
		if len(t.Then) == 0 {
			reads++
		}
	}
	w.mu.Unlock()
	wrong, err := trust.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	crowded := false
	for range 30 {
		wrong.Secret[0]++ // never the byte of the known token
		err := two.join(wrong.String())
		crowded = crowded || api.CodeOf(err) == api.Failed
	}
	if reads > 10 || !crowded {
		t.Errorf("30 unknown tokens cost %d reads of etcd, and some were refused: %v", reads, crowded)
	}
	if err := two.join(token); err != nil {
		t.Errorf("a known token: %v", err)
	}
}

// TestJoinAsKnownNode joins with the id of a node, which its certificate shows to any host, and with another key. That
// must cost as few transactions as an unknown token. The node itself, whose answer was lost, is not limited.
func TestJoinAsKnownNode(t *testing.T) {
	w := newWorld(t)
	one := w.host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	one.knows("host1")
	reads := 0
	w.mu.Lock()
	w.still = time.Now() // the budget of requests does not grow meanwhile
	one.committing = func(t kv.Txn) {
		if len(t.Then) == 0 {
			reads++
		}
	}
	w.mu.Unlock()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := member.StoredCertificate(one.dir)
	if err != nil {
		t.Fatal(err)
	}
	client, connection := one.stranger()
	join := func(key *ecdsa.PrivateKey, prove bool) int {
		t.Helper()
		request, err := trust.Request(key)
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]any{"secret": []byte("unknown"), "node": one.id(), "name": "host1",
			"addresses": []string{"192.0.2.1"}, "port": 7947, "version": "1.2.3", "format": record.Format,
			"request": request}
		state := connection()
		if prove {
			if said["proof"], err = trust.Prove(key, state); err != nil {
				t.Fatal(err)
			}
		}
		body, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Post("https://192.0.2.1:7947/v1/join", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		return r.StatusCode
	}
	own, ok := stored.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("the node has no key")
	}
	for range 15 {
		if join(key, true) == http.StatusOK {
			t.Fatal("a host joins with the id of a node and another key")
		}
		if join(own, false) == http.StatusOK { // as someone does who has seen the node's request
			t.Fatal("a certificate request without a proof for the connection gets the cluster's key")
		}
	}
	if reads > 10 {
		t.Errorf("30 joins with the id of a node cost %d reads of etcd", reads)
	}
	if join(own, true) != http.StatusOK {
		t.Error("a node with its key gets no certificate")
	}
}

// stranger returns a client without a certificate, and the function that opens the connection of its next request.
func (h *host) stranger() (client *http.Client, connect func() tls.ConnectionState) {
	var next *tls.Conn
	client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return next, nil }}}
	return client, func() tls.ConnectionState {
		h.Helper()
		conn, err := h.dial(h.Context(), "tcp", "192.0.2.1:7947")
		if err != nil {
			h.Fatal(err)
		}
		next = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if err := next.HandshakeContext(h.Context()); err != nil {
			h.Fatal(err)
		}
		return next.ConnectionState()
	}
}

// TestAddressOfAnotherNode joins with the address of another node.
func TestAddressOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	node := two.node()
	node.Addresses = append(node.Addresses[:0:0], netip.MustParseAddr("192.0.2.1"))
	two.own(append(two.node().Addresses, node.Addresses...)...)
	two.refuses("an address that is taken", two.Join(t.Context(), api.ClusterJoin{Token: token, ClusterNode: node}),
		api.Conflict, "node host1 already has the address 192.0.2.1")
	if _, known := w.store.Snapshot().Get(record.Key(record.NodeNames, "host2")); known {
		t.Error("the node is admitted")
	}
	if err := two.join(token); err != nil { // the token was not used
		t.Error(err)
	}
}
