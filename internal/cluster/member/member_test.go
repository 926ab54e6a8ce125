package member_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// TestThreeHosts makes a cluster of three hosts, which ask each other, drain, and leave.
func TestThreeHosts(t *testing.T) {
	one, two, three := newWorld(t).three()
	var said string
	one.until("the node answers", func() bool { return one.Peer(t.Context(), two.id(), "echo", "x", &said) == nil })
	if said != one.id()+` asked "x"` {
		t.Errorf("the answer is %q", said)
	}
	pong, err := three.Ping(t.Context(), one.id())
	if err != nil || pong.Name != "host1" || pong.Format != record.Format {
		t.Errorf("ping: %v, %v", pong, err)
	}
	if u := <-two.seen; u.Snapshot == nil || len(u.Changed) == 0 {
		t.Errorf("the consumer got %v", u)
	}
	two.until("the nodes are alive with their problems", func() bool {
		s, err := two.Status(t.Context())
		for _, n := range s.Nodes {
			if err != nil || !n.Alive || len(n.Problems) != 1 {
				return false
			}
		}
		return true
	})
	if err := three.Drain(t.Context(), api.ClusterNodeRequest{Node: "host2"}); err != nil {
		t.Fatal(err)
	}
	one.until("host2 is drained", func() bool { s, _ := one.Status(t.Context()); return s.Nodes[1].Drained })
	if err := three.Drain(t.Context(), api.ClusterNodeRequest{Node: "host2", Undo: true}); err != nil {
		t.Fatal(err)
	}
	one.until("host2 is enabled", func() bool { s, _ := one.Status(t.Context()); return !s.Nodes[1].Drained })
	one.refuses("an unknown node", one.Drain(t.Context(), api.ClusterNodeRequest{Node: "host9"}), api.NotFound,
		"it has host1, host2, host3")

	two.clients = []string{"web"}
	_, err = two.Leave(t.Context(), api.ClusterNodeRequest{})
	two.refuses("leave with attachments", err, api.Conflict, "web is attached")
	two.clients = nil
	if _, err := two.Leave(t.Context(), api.ClusterNodeRequest{}); err != nil || !two.left || two.Joined() {
		t.Errorf("leave: %v", err)
	}
	if _, err := os.Stat(two.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a host that left: %v", err)
	}
	one.knows("host1 host3")
	if err := two.join(one.token(api.ClusterTokenRequest{})); err != nil {
		t.Errorf("join again: %v", err)
	}
	one.knows("host1 host2 host3")
	for _, h := range []*host{one, two, three} {
		if _, err := h.Leave(t.Context(), api.ClusterNodeRequest{}); err != nil {
			t.Errorf("host %d leaves: %v", h.n, err)
		}
	}
	for e := range one.store.Snapshot().Under("") {
		t.Errorf("the store still has %s", e.Key)
	}
}

// TestMTU joins hosts and changes the MTU of their links. Their records must have it from the beginning, and
// keep the earlier one while it is not known.
func TestMTU(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	one.mtu.Store(1500)
	two.mtu.Store(1400)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	if err := two.join(one.token(api.ClusterTokenRequest{})); err != nil {
		t.Fatal(err)
	}
	two.knows("host1 host2")
	get := func(h *host) kv.Entry {
		e, _ := w.store.Snapshot().Get(record.Key(record.Nodes, h.id()))
		return e
	}
	has := func(h *host, want int) bool {
		n, err := record.Decode[record.Node](get(h))
		return err == nil && n.MTU == want
	}
	w.until("the first records of the nodes have their MTU", func() bool { return has(one, 1500) && has(two, 1400) })
	two.mtu.Store(0)
	first := get(one)
	if err := one.Drain(t.Context(), api.ClusterNodeRequest{Node: "host1"}); err != nil {
		t.Fatal(err)
	}
	one.mtu.Store(9000)
	w.until("the record of host1 has its MTU", func() bool { return has(one, 9000) })
	n, err := record.Decode[record.Node](get(one))
	if err != nil || !n.Drained {
		t.Errorf("the record of host1 was %s and is %s", first.Value, get(one).Value)
	}
	unknown := get(two)
	two.mtu.Store(1300)
	w.until("the record of host2 has its MTU", func() bool { return has(two, 1300) })
	if n, err := record.Decode[record.Node](unknown); err != nil || n.MTU != 1400 {
		t.Errorf("while its MTU was not known, the record of host2 was %s", unknown.Value)
	}
}

// TestTokens joins with tokens that are used, expired, removed and wrong.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.host(1), w.host(2), w.host(3)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	used := one.token(api.ClusterTokenRequest{})
	if err := two.join(used); err != nil {
		t.Fatal(err)
	}
	three.refuses("a used token", three.join(used), api.Invalid, "was used")
	parsed, err := trust.ParseToken(used)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Secret[0] ^= 1
	three.refuses("a wrong secret", three.join(parsed.String()), api.Invalid, "is wrong")
	three.refuses("an altered token", three.join(used[:len(used)-1]), api.Invalid, "copy it again")
	fresh := one.token(api.ClusterTokenRequest{Life: time.Minute})
	w.mu.Lock()
	w.skew = 2 * time.Minute
	w.mu.Unlock()
	three.refuses("an expired token", three.join(fresh), api.Invalid, "has expired")
	token, err := one.CreateToken(t.Context(), api.ClusterTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	one.until("the token is listed alone", func() bool {
		all, err := one.Tokens()
		return err == nil && len(all) == 1 && all[0].ID == token.ID && all[0].Text == ""
	})
	if err := one.RemoveToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	three.refuses("a removed token", three.join(token.Text), api.Invalid, "is wrong")
	one.until("it is not listed", func() bool { all, _ := one.Tokens(); return len(all) == 0 })
	one.refuses("remove it again", one.RemoveToken(t.Context(), token.ID), api.NotFound, "there is no token")
	if err := three.join(one.token(api.ClusterTokenRequest{})); err != nil {
		t.Errorf("a good token after the bad ones: %v", err)
	}
}

// TestManInTheMiddle joins while another cluster's node answers at the address. It must not get the
// secret.
func TestManInTheMiddle(t *testing.T) {
	w, theirs := newWorld(t), newWorld(t)
	one, evil, two := w.host(1), theirs.host(1), w.host(2)
	if err := errors.Join(one.init(), evil.init()); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	evil.token(api.ClusterTokenRequest{})
	honest := w.listener("192.0.2.1:7947")
	w.route("192.0.2.1:7947", theirs.listener("192.0.2.1:7947"))
	if err := two.join(token); err == nil || !strings.Contains(err.Error(), "not of the cluster of the join token") {
		t.Errorf("join through another host: %v", err)
	}
	w.route("192.0.2.1:7947", honest)
	if err := two.join(token); err != nil { // the token was not used
		t.Error(err)
	}
}

// TestNames refuses a name that another node has, and a host that belongs to a cluster already.
func TestNames(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	node := two.node()
	node.Node = "host1"
	two.refuses("a name that is taken", two.Join(t.Context(), api.ClusterJoin{Token: token, ClusterNode: node}),
		api.Conflict, "another node host1")
	one.refuses("join as a member", one.join(token), api.Conflict, "already belongs to cluster default")
	one.refuses("init as a member", one.init(), api.Conflict, "already belongs to cluster default")
	two.refuses("init while joining", two.init(), api.Conflict, "joining a cluster was interrupted")
	if err := two.join(token); err != nil {
		t.Error(err)
	}
	three := w.host(3)
	three.refuses("a second cluster with the name", three.init(), api.Conflict, "etcd already has a cluster")
	for _, address := range []string{"127.0.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1%eth0"} {
		err := w.host(4).Init(t.Context(), api.ClusterInit{Etcd: api.EtcdAccess{Endpoints: []string{"http://x:1"}},
			ClusterNode: api.ClusterNode{Addresses: []netip.Addr{netip.MustParseAddr(address)}}})
		one.refuses("address "+address, err, api.Invalid, "by which the other hosts")
	}
}

// TestInterrupted loses the answers of etcd and of the node while a cluster is created and joined. A
// later attempt of another process completes it, with the same token.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	one.client.Set(kvtest.AnswerLost)
	if err := one.unanswered(); !errors.Is(err, kv.ErrUnknown) {
		t.Fatalf("init without an answer: %v", err)
	}
	one.client.Set(kvtest.Works)
	one.stop()
	one.start()
	if one.Joined() {
		t.Error("the host is a member without etcd's answer")
	}
	if err := one.init(); err != nil {
		t.Fatalf("init again: %v", err)
	}
	token := one.token(api.ClusterTokenRequest{})
	// The host ends its request when it has been admitted, before it gets the answer.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan struct{})
	w.mu.Lock()
	one.committed = func(t kv.Txn) {
		if strings.HasPrefix(t.Then[0].Key, record.Nodes) {
			cancel()
			<-failed
		}
	}
	w.mu.Unlock()
	err := two.Join(ctx, api.ClusterJoin{Token: token, ClusterNode: two.node()})
	close(failed)
	if _, admitted := w.store.Snapshot().Get(record.Key(record.NodeNames, "host2")); err == nil || !admitted {
		t.Fatalf("join without an answer: %v, and the node is admitted: %v", err, admitted)
	}
	two.stop()
	two.start()
	if err := two.join(token); err != nil {
		t.Fatalf("join again with the same token: %v", err)
	}
	two.knows("host1 host2")
	one.until("the token that was used is not listed", func() bool {
		all, err := one.Tokens()
		return err == nil && len(all) == 0
	})
}

// askAs sends a ping with the certificate in a host's directory, without verifying the other side.
func askAs(h *host, address string) error {
	pair, err := member.StoredCertificate(h.dir)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: h.dial, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}}
	r, err := client.Post("https://"+address+"/v1/ping", "application/json", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return errors.New(r.Status)
	}
	return nil
}

// TestHostilePeers sends what no node sends. The node survives, and answers the next one.
func TestHostilePeers(t *testing.T) {
	one, two, _ := newWorld(t).three()
	if err := askAs(two, "192.0.2.1:7947"); err != nil {
		t.Fatalf("a node with its certificate: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: one.dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for path, body := range map[string]string{"ping": "{}", "ask/echo": "{}", "join": "x", "join ": "",
		"join?": strings.Repeat("[", 100_000), "join?x": `{"node":"../..","name":"x"}`,
		"join?y": `{"format":1,"node":"0123456789abcdef","name":"x/y","port":1}`} {
		r, err := client.Post("https://192.0.2.1:7947/v1/"+strings.TrimSpace(path), "application/json",
			strings.NewReader(body))
		if err != nil {
			continue
		}
		if r.StatusCode == http.StatusOK {
			t.Errorf("%s %.20q is answered with %s", path, body, r.Status)
		}
		r.Body.Close()
	}
	var conns []net.Conn
	for range 200 {
		if c, err := one.dial(t.Context(), "tcp", "192.0.2.1:7947"); err == nil {
			conns = append(conns, c)
		}
	}
	for _, c := range conns {
		c.Close()
	}
	one.until("the node answers again", func() bool { return askAs(two, "192.0.2.1:7947") == nil })
}

// TestAway restarts a host while etcd does not answer, and changes nothing on it.
func TestAway(t *testing.T) {
	one, two, _ := newWorld(t).three()
	two.client.Set(kvtest.Refused)
	two.refuses("drain without etcd", two.Drain(t.Context(), api.ClusterNodeRequest{Node: "host1"}), api.Failed,
		kv.ErrUnavailable.Error())
	_, err := two.Leave(t.Context(), api.ClusterNodeRequest{})
	two.refuses("leave without etcd", err, api.Failed, "--force")
	if !two.Joined() || two.left {
		t.Error("the host has left without etcd")
	}
	two.stop()
	two.start()
	if !two.Joined() || two.left {
		t.Error("after a restart the host is no member")
	}
	two.client.Set(kvtest.Works)
	two.knows("host1 host2 host3")
	two.client.Set(kvtest.Refused)
	notes, err := two.Leave(t.Context(), api.ClusterNodeRequest{Force: true})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "fairlead cluster rm host2") || !two.left {
		t.Errorf("leave with force: %q, %v", notes, err)
	}
	if one.names() != "host1 host2 host3" {
		t.Errorf("host1 has %s", one.names())
	}
}

// TestFiles checks that only the owner can read the node's keys.
func TestFiles(t *testing.T) {
	one := newWorld(t).host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{one.dir: 0o700, filepath.Join(one.dir, "member.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}
