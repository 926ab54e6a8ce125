package agreement_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/agreement"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// node is a node with service web, whose two real servers are 10.9.0.1 and 10.9.0.2.
type node struct {
	*agreement.Agreement
	of      *cluster
	name    string
	changed chan struct{}

	mu     sync.Mutex
	down   map[string]bool
	events []string
}

// cluster has nodes whose ids are their names. It counts questions.
type cluster struct {
	nodes map[string]*node
	mu    sync.Mutex
	asked int
	// gone has the nodes that answer nothing.
	gone map[string]bool
}

// newCluster returns the nodes a, b and c. All but c accept the service's clients.
func newCluster(t *testing.T) *cluster {
	w := &cluster{nodes: map[string]*node{}, gone: map[string]bool{}}
	entries := []kv.Entry{{Key: "svcs/web", Revision: 1,
		Value: record.Encode(record.Service{Ingress: []string{"a", "b"}, Spec: model.VirtualService{Name: "web",
			Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, Ports: []model.PortRange{model.Port(80)},
			Proto: model.TCP, Plane: model.PlaneEBPF, Forward: model.ForwardDirect}})}}
	for _, name := range []string{"a", "b", "c"} {
		entries = append(entries, kv.Entry{Key: "nodes/" + name, Revision: 1,
			Value: record.Encode(record.Node{ID: name, Name: name})})
	}
	snapshot := kv.NewTable(1, entries)
	for _, name := range []string{"a", "b", "c"} {
		n := &node{of: w, name: name, changed: make(chan struct{}, 1), down: map[string]bool{}}
		n.Agreement = agreement.New(agreement.Config{Host: host{n}, Peers: n, Changed: n.changed})
		n.Update(t.Context(), member.Self{Node: name}, kv.Update{Snapshot: snapshot})
		w.nodes[name] = n
		go n.Run(t.Context())
	}
	return w
}

// Note implements agreement.Host.
func (n *node) Note(e api.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, fmt.Sprintf("%s %s: %s", e.Kind, e.Object, e.Detail))
}

// host is the daemon of a node.
type host struct{ *node }

// Services implements agreement.Host.
func (h host) Services() []api.ServiceView {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := api.ServiceView{VirtualService: model.VirtualService{Name: "web", Origin: model.FromCluster}}
	for _, at := range []string{"10.9.0.1", "10.9.0.2"} {
		state := api.RealUp
		if h.down[at] {
			state = api.RealDown
		}
		v.Servers = append(v.Servers, api.RealView{Address: netip.MustParseAddr(at), State: state})
	}
	return []api.ServiceView{v}
}

// Service implements agreement.Host.
func (h host) Service(string) (api.ServiceView, error) { return h.Services()[0], nil }

// Peer implements agreement.Peers.
func (n *node) Peer(ctx context.Context, id, kind string, question, into any) error {
	n.of.mu.Lock()
	n.of.asked++
	gone := n.of.gone[id] || n.of.gone[n.name]
	n.of.mu.Unlock()
	if gone || kind != agreement.Question {
		return errors.New("connection\nrefused")
	}
	text, err := json.Marshal(question)
	if err != nil {
		return err
	}
	answer, err := n.of.nodes[id].Answer(ctx, n.name, text)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(answer); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// finds sets whether the checks of a node find a server down, and waits.
func (w *cluster) finds(name, at string, down bool) {
	n := w.nodes[name]
	n.mu.Lock()
	n.down[at] = down
	n.mu.Unlock()
	n.changed <- struct{}{}
	time.Sleep(8 * time.Second)
	synctest.Wait()
}

// shown returns what a node shows of the servers that are not up everywhere.
func (w *cluster) shown(name string) string {
	v, _ := w.nodes[name].Service("web")
	var all []string
	for _, s := range v.Servers {
		if s.Nodes == nil && !s.Removed {
			continue
		}
		text := fmt.Sprintf("%s %s", s.Address, s.State)
		if s.Removed {
			text += " everywhere"
		}
		for _, f := range s.Nodes {
			text += fmt.Sprintf(" %s=%s%s", f.Node, f.State, f.Problem)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (w *cluster) want(t *testing.T, when, a, b string) {
	t.Helper()
	if got := []string{w.shown("a"), w.shown("b")}; !slices.Equal(got, []string{a, b}) {
		t.Errorf("%s, the nodes show %q, want %q", when, got, []string{a, b})
	}
}

// TestAgreement lets one node find a server down, then the other one. Node c accepts no clients, and is not
// asked.
func TestAgreement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		time.Sleep(time.Minute)
		if w.asked > 0 {
			t.Errorf("while all servers are up, %d questions were asked", w.asked)
		}
		w.finds("a", "10.9.0.2", true)
		w.want(t, "after a", "10.9.0.2 down b=up", "10.9.0.2 up a=down")
		if w.shown("c") != "" {
			t.Errorf("c shows %s", w.shown("c"))
		}
		w.finds("b", "10.9.0.2", true)
		w.want(t, "after both", "10.9.0.2 down everywhere b=down", "10.9.0.2 down everywhere a=down")
		w.finds("a", "10.9.0.2", false)
		w.want(t, "after a has found it up", "10.9.0.2 up b=down", "10.9.0.2 down a=up")
		w.gone["a"] = true
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.want(t, "without answers of a", "10.9.0.2 up b=down", `10.9.0.2 down everywhere a=connection\nrefused`)
		time.Sleep(20 * time.Second)
		w.want(t, "without reports of b", "", `10.9.0.2 down everywhere a=connection\nrefused`)
		w.gone["a"] = false
		w.finds("b", "10.9.0.2", false)
		w.want(t, "at the end", "", "")
		before := w.asked
		time.Sleep(time.Minute)
		if w.asked != before {
			t.Errorf("after the end, %d questions were asked", w.asked-before)
		}
		wantEvents := []string{
			"up elsewhere service web real 10.9.0.2: it is down on this node, up on b",
			"removed service web real 10.9.0.2: it is down on this node, down on b"}
		if got := w.nodes["a"].events; !slices.Equal(got, wantEvents) {
			t.Errorf("the events of a are %q, want %q", got, wantEvents)
		}
	})
}

// TestHostileReport answers questions that are no reports, or name what does not exist.
func TestHostileReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		for _, text := range []string{"", "[]", `{"down":[{"real":"x"}]}`, `{"down":7}`} {
			if _, err := w.nodes["a"].Answer(t.Context(), "b", json.RawMessage(text)); api.CodeOf(err) != api.Invalid {
				t.Errorf("%s: %v", text, err)
			}
		}
		large := agreement.Report{}
		for i := range 10_000 {
			large.Down = append(large.Down, agreement.Server{Service: fmt.Sprint(i)})
		}
		if _, err := w.nodes["a"].Answer(t.Context(), "b", record.Encode(large)); err != nil {
			t.Error(err)
		}
		w.want(t, "after hostile reports", "", "")
	})
}
