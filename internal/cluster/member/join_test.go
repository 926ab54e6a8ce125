package member_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// whenNodeIsWritten calls do once, before or after the host commits a transaction that writes the record of a node.
func (h *host) whenNodeIsWritten(after bool, do func()) {
	once := sync.OnceFunc(do)
	hook := func(t kv.Txn) {
		for _, c := range t.Then {
			if strings.HasPrefix(c.Key, record.Nodes) {
				once()
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if after {
		h.committed = hook
	} else {
		h.committing = hook
	}
}

// TestJoinsAtOnce lets two hosts with the same address join at two nodes at the same time. One of them is refused.
func TestJoinsAtOnce(t *testing.T) {
	w := newWorld(t)
	one, two, _ := w.three()
	first, second := w.host(4), w.host(5)
	for _, h := range []*host{first, second} {
		h.own(address(50))
	}
	join := func(h *host, token string) error {
		return h.Join(t.Context(), api.ClusterJoin{Token: token,
			ClusterNode: api.ClusterNode{Addresses: []netip.Addr{address(50)}}})
	}
	at, also := one.token(api.ClusterTokenRequest{}), two.token(api.ClusterTokenRequest{})
	one.whenNodeIsWritten(false, func() {
		if err := join(second, also); err != nil {
			t.Errorf("the first transaction: %v", err)
		}
	})
	first.refuses("a host whose address was given to another one meanwhile", join(first, at), api.Conflict,
		"node host5 already has the address 192.0.2.50")
}

// TestJoinAgainWithAnotherAddress loses the answer to a join, and repeats the join with another address.
func TestJoinAgainWithAnotherAddress(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	one.whenNodeIsWritten(true, func() { cancel(); <-ended })
	err := two.Join(ctx, api.ClusterJoin{Token: token, ClusterNode: two.node()})
	close(ended)
	if err == nil {
		t.Fatal("the answer was not lost")
	}
	two.own(address(22))
	err = two.Join(t.Context(), api.ClusterJoin{Token: token,
		ClusterNode: api.ClusterNode{Addresses: []netip.Addr{address(22)}}})
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := record.Get[record.Node](w.store.Snapshot(), record.Key(record.Nodes, two.id()))
	if err != nil || len(n.Addresses) != 1 || n.Addresses[0] != address(22) {
		t.Errorf("the node has the addresses %v, %v", n.Addresses, err)
	}
	var said string
	one.until("the node answers at its address", func() bool {
		return one.Peer(t.Context(), two.id(), "echo", "x", &said) == nil
	})
}

// forged returns a certificate in the name of a node, with another key, as any host can sign it that is or was a node.
func (h *host) forged(id string) tls.Certificate {
	h.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "member.json"))
	if err != nil {
		h.Fatal(err)
	}
	var stored struct {
		Cluster    string `json:"cluster"`
		CA         []byte `json:"ca"`
		ClusterKey []byte `json:"clusterKey"`
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		h.Fatal(err)
	}
	sealed, _, err := record.Get[record.Authority](h.store.Snapshot(), record.CAKey)
	if err != nil {
		h.Fatal(err)
	}
	ca, err := trust.OpenAuthority(stored.CA, sealed.Sealed, stored.ClusterKey)
	if err != nil {
		h.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		h.Fatal(err)
	}
	der, err := ca.Sign(trust.Identity{Cluster: stored.Cluster, Node: id}, &key.PublicKey, h.now())
	if err != nil {
		h.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, stored.CA}, PrivateKey: key}
}

// TestForgedCertificate signs certificates in the name of another node, as a removed node can. The nodes refuse them on
// both sides of a connection.
func TestForgedCertificate(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.three()
	ping := func(pair tls.Certificate) error {
		client := &http.Client{Transport: &http.Transport{DialContext: three.dial, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}}
		r, err := client.Post("https://192.0.2.1:7947/v1/ping", "application/json", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		if r.StatusCode != http.StatusOK {
			t.Errorf("the API answers %s to a certificate that it has accepted", r.Status)
		}
		return r.Body.Close()
	}
	forged := three.forged(two.id())
	if err := ping(forged); err == nil {
		t.Error("the API accepts a certificate with another key than that of the node's record")
	}
	key, ok := forged.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("the certificate has no key")
	}
	l, err := w.listen(t.Context(), netip.MustParseAddrPort("192.0.2.2:7947")) // instead of host2
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	self := trust.Node{Identity: trust.Identity{Node: two.id()}, Certificate: forged.Certificate[0],
		CA: forged.Certificate[1], Key: key}
	server := &http.Server{TLSConfig: trust.Server(func() trust.Node { return self },
		func(trust.Peer) bool { return true }, w.now)}
	go func() { _ = server.ServeTLS(l, "", "") }() // it ends with the listener
	var said string
	if err := one.Peer(t.Context(), two.id(), "echo", "x", &said); err == nil ||
		!strings.Contains(err.Error(), trust.ErrNotMember.Error()) {
		t.Errorf("a node with another key than that of its record answers: %v", err)
	}
}
