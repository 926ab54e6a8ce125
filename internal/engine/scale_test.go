package engine_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
)

func TestManyEndpointsOnOneBridge(t *testing.T) {
	w := world(t)
	before := snapshot(t, w)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("box%03d", i))
	}
	s := dual(t, w, model.DriverBridge, names...)
	for i, name := range names {
		publish(&s, name, model.ViaNAT, model.TCP, 8000+uint16(i), 80)
	}
	mustSet(t, w, s)
	undrifted(t, w)
	for _, i := range []int{0, 50, 99} {
		serve(t, in(w, names[i]), names[i], ":80")
		for _, addr := range server(8000 + i) {
			hears(t, w.DoClient, model.TCP, addr, names[i])
		}
	}
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	unchanged(t, w, before)
}

// TestTearDownAfterASandboxDied deletes a sandbox while it is attached.
func TestTearDownAfterASandboxDied(t *testing.T) {
	for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		t.Run(string(d), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			name := fmt.Sprintf("fairlead-test-%d", os.Getpid())
			onServer(t, w, "ip netns add "+name)
			gone := false
			remove := func() {
				if !gone {
					onServer(t, w, "ip netns del "+name)
					gone = true
				}
			}
			t.Cleanup(remove)
			s := dual(t, w, d, "web", "app")
			s.Endpoints[1].Sandbox = "/run/netns/" + name
			publish(&s, "app", model.ViaNAT, model.TCP, 8080, 80)
			mustSet(t, w, s)
			remove()
			if err := w.Engine.TearDown(context.Background()); err != nil {
				t.Fatal(err)
			}
			unchanged(t, w, before)
		})
	}
}

// TestPlanTextIsValid runs the printed plan of a full state in a shell, on a new
// server host. The engine must then find the desired state there.
func TestPlanTextIsValid(t *testing.T) {
	w := world(t)
	clean := snapshot(t, w)
	s := dual(t, w, model.DriverBridge, "web", "app")
	routed := dual(t, w, model.DriverRouted, "far")
	routed.Networks[0].Name = "lone"
	routed.Networks[0].Subnets = []model.Subnet{{Prefix: netip.MustParsePrefix("172.31.0.0/24")},
		{Prefix: netip.MustParsePrefix("fd00:31::/64")}}
	routed.Endpoints[0].Network = "lone"
	s.Networks = append(s.Networks, routed.Networks...)
	s.Endpoints = append(s.Endpoints, routed.Endpoints...)
	s.Networks[0].MTU, s.Networks[0].Hairpin, s.Networks[0].Filter = 1400, true, model.FilterOn
	for i := range s.Endpoints {
		s.Endpoints[i].Sandbox = strings.Replace(s.Endpoints[i].Sandbox, "self", fmt.Sprint(os.Getpid()), 1)
	}
	for i, e := range s.Endpoints {
		for _, proto := range protos {
			publish(&s, e.Name, model.ViaNAT, proto, 8000+uint16(i), 80)
			s.Publishes = append(s.Publishes, model.Publish{Endpoint: e.Name, Via: model.ViaNAT, Proto: proto,
				HostPorts: model.PortRange{First: 9000 + 100*uint16(i), Last: 9010 + 100*uint16(i)},
				Ports:     model.PortRange{First: 9000 + 100*uint16(i), Last: 9010 + 100*uint16(i)}})
		}
	}
	ops, err := w.Engine.Plan(s)
	if err != nil {
		t.Fatal(err)
	}
	onServer(t, w, "set -e\n"+withoutProxy(plan.Text(ops)))
	left, err := w.Engine.Plan(s)
	if err != nil {
		t.Fatal(err)
	}
	left = slices.DeleteFunc(left, func(op plan.Op) bool {
		switch op.Object.(type) {
		case plan.Listener, plan.Reservation:
			return true
		}
		return false
	})
	// A table that the shell made lacks our comments, so the engine would make
	// it again with all its elements. No other step may be left.
	for _, op := range left {
		switch op.Object.(type) {
		case plan.Table, plan.NFTMapping, plan.Member:
			if op.Del {
				t.Errorf("unexpected object: %s", op.Object.Key())
			}
		default:
			t.Errorf("left after the printed plan: %s %+v", strings.Join(op.Commands(), "; "), op)
		}
	}
	serve(t, in(w, "app"), "app", ":80")
	serve(t, in(w, "far"), "far", ":80")
	for _, addr := range server(8001) {
		hears(t, w.DoClient, model.UDP, addr, "app")
	}
	for _, addr := range server(8002) {
		hears(t, w.DoClient, model.TCP, addr, "far")
	}
	typed := onServer(t, w, "nft -s list table inet fairlead")
	mustSet(t, w, s)
	undrifted(t, w)
	made := strings.ReplaceAll(onServer(t, w, "nft -s list table inet fairlead"), ` comment "fairlead"`, "")
	if a, b := normal(typed), normal(made); a != b {
		t.Errorf("typed:\n%s\nmade:\n%s", a, b)
	}

	// The printed plan must also remove everything.
	mustSet(t, w, model.State{})
	onServer(t, w, "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
	mustSet(t, w, s)
	ops, err = w.Engine.Plan(model.State{})
	if err != nil {
		t.Fatal(err)
	}
	onServer(t, w, "set -e\n"+withoutProxy(plan.Text(ops)))
	if err := w.Engine.TearDown(context.Background()); err != nil {
		t.Fatal(err)
	}
	unchanged(t, w, clean)
}

// TestTextOfAChangeIsValid runs the printed plan of a large change in a shell. Set
// must then change nothing more.
func TestTextOfAChangeIsValid(t *testing.T) {
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web", "app")
	for i := range s.Endpoints {
		s.Endpoints[i].Sandbox = strings.Replace(s.Endpoints[i].Sandbox, "self", fmt.Sprint(os.Getpid()), 1)
		publish(&s, s.Endpoints[i].Name, model.ViaNAT, model.TCP, 8000+uint16(i), 80)
	}
	mustSet(t, w, s)
	s = s.Clone()
	s.Networks[0].MTU, s.Networks[0].Filter = 1400, model.FilterOn
	s.Networks[0].Subnets[0].Prefix = netip.MustParsePrefix("172.30.0.0/16")
	s.Networks[0].Subnets[1].Address = netip.MustParseAddr("fd00:30::fe")
	s.Publishes[0].Endpoint = "app"
	s.Publishes[1].HostPorts = model.Port(9001)
	ops, err := w.Engine.Plan(s)
	if err != nil {
		t.Fatal(err)
	}
	onServer(t, w, "set -e\n"+withoutProxy(plan.Text(ops)))
	typed := onServer(t, w,
		"nft -s list table inet fairlead; ip -o addr | grep -v fe80 | sort; ip -o link | sort; ip route | sort")
	mustSet(t, w, s)
	undrifted(t, w)
	made := onServer(t, w,
		"nft -s list table inet fairlead; ip -o addr | grep -v fe80 | sort; ip -o link | sort; ip route | sort")
	if diff := cmp.Diff(strings.Split(typed, "\n"), strings.Split(made, "\n")); diff != "" {
		t.Errorf("typed (-), made (+):\n%s", diff)
	}
}

// withoutProxy removes the lines that only Fairlead can execute.
func withoutProxy(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "fairlead-proxy ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// normal sorts a listing of our table: the order of sets and of their
// elements means nothing.
func normal(listing string) string {
	var blocks []string
	for _, block := range strings.Split(listing, "\n\t}\n") {
		head, elements, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(block), "table inet fairlead {"),
			"elements = {")
		list := strings.FieldsFunc(elements, func(r rune) bool { return r == ',' || r == '}' || r == '\n' })
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		slices.Sort(list)
		blocks = append(blocks, strings.TrimSpace(head)+"\n"+strings.TrimSpace(strings.Join(list, "\n")))
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "\n\n")
}
