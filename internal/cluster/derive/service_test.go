package derive_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/cluster/derive"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// site is the cluster of three with a service. Node b is drained.
func site() records {
	r := three()
	b := node("b", "192.0.2.2", "2001:db8::2")
	b.Drained = true
	r["nodes/b"] = b
	r["svcs/site"] = record.Service{Spec: model.VirtualService{Name: "site",
		Addresses: []netip.Addr{addr("198.51.100.80")}, Ports: []model.PortRange{model.Port(80)}, Proto: model.TCP,
		Forward: model.ForwardDirect, Plane: model.PlaneEBPF, Check: model.Check{Type: model.CheckTCP},
		Reals: []model.RealServer{{Select: model.Select{Name: "shop*", Network: "web"}, Weight: 1},
			{Address: addr("10.9.2.9"), Weight: 1}}}}
	r["reals/site/a/shop1"] = record.Real{Address: addr("10.9.1.7"), Weight: 1}
	r["reals/site/b/shop2"] = record.Real{Address: addr("10.9.2.7"), Weight: 2}
	r["reals/site/c/shop3"] = record.Real{Address: addr("10.9.3.7"), Weight: 3}
	return r
}

// servers derives the service of a node, and returns its real servers with weights and states.
func servers(r records, node string) (list string, v model.VirtualService, problems []string) {
	s := r.snapshot()
	_, services, problems := derive.New(node).Update(kv.Update{Snapshot: s, Changed: kv.Diff(kv.NewTable(0, nil), s)})
	if len(services) == 0 {
		return "", v, problems
	}
	v = services[0]
	var all []string
	for _, real := range v.Reals {
		all = append(all, strings.TrimSuffix(fmt.Sprintf("%s*%d=%s", real, real.Weight, real.State), "="))
	}
	return strings.Join(all, " "), v, problems
}

func TestServices(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(records)
		node    string
		want    string
		problem string
	}{
		"other nodes": {func(records) {}, "a",
			"name=shop*,network=web*1 10.9.2.9*1=draining 10.9.2.7*2=draining 10.9.3.7*3", ""},
		"drained": {func(records) {}, "b",
			"name=shop*,network=web*1=draining 10.9.2.9*1=draining 10.9.1.7*1 10.9.3.7*3", ""},
		"a node that was removed": {func(r records) { delete(r, "nodes/c") }, "a",
			"name=shop*,network=web*1 10.9.2.9*1=draining 10.9.2.7*2=draining", ""},
		"a container that stops": {func(r records) {
			r["reals/site/c/shop3"] = record.Real{Address: addr("10.9.3.7"), Weight: 3, Draining: true}
		}, "a", "name=shop*,network=web*1 10.9.2.9*1=draining 10.9.2.7*2=draining 10.9.3.7*3=draining", ""},
		"listed by address too": {func(r records) {
			r["reals/site/c/shop3"] = record.Real{Address: addr("10.9.2.9"), Weight: 3}
		}, "a", "name=shop*,network=web*1 10.9.2.9*1=draining 10.9.2.7*2=draining", ""},
		"an address of this host": {func(r records) {
			r["reals/site/c/shop3"] = record.Real{Address: addr("10.9.1.1"), Weight: 3}
		}, "a", "name=shop*,network=web*1 10.9.2.9*1=draining 10.9.2.7*2=draining",
			"10.9.1.1 is no address of another node"},
		"an address outside": {func(r records) {
			r["reals/site/c/shop3"] = record.Real{Address: addr("192.0.2.1"), Weight: 3}
		}, "a", "name=shop*,network=web*1 10.9.2.9*1=draining 10.9.2.7*2=draining",
			"192.0.2.1 is no address of another node"},
		"another port": {func(r records) {
			r["reals/site/c/shop3"] = record.Real{Address: addr("10.9.3.7"), Port: 81, Weight: 3}
		}, "a", "name=shop*,network=web*1 10.9.2.9*1=draining 10.9.2.7*2=draining",
			"cannot change the client's destination port"},
		"another ingress": {func(r records) {
			s := r["svcs/site"].(record.Service)
			s.Ingress = []string{"host-c"}
			r["svcs/site"] = s
		}, "a", "name=shop*,network=web*1 10.9.2.9*1=draining", ""},
		"another name": {func(r records) { r["svcs/blog"] = r["svcs/site"] }, "a",
			"name=shop*,network=web*1 10.9.2.9*1=draining 10.9.2.7*2=draining 10.9.3.7*3", `it has the name "site"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := site()
			test.change(r)
			list, v, problems := servers(r, test.node)
			if s := strings.Join(problems, "\n"); list != test.want || !strings.Contains(s, test.problem) ||
				(s == "") != (test.problem == "") {
				t.Errorf("the real servers are %q, want %q; the problems are %q, want %q", list, test.want, s,
					test.problem)
			}
			if v.NoIngress != (name == "another ingress") || v.NoIngress == v.Check.Checks() ||
				v.Origin != model.FromCluster {
				t.Errorf("the service is %+v", v)
			}
			for _, s := range v.Reals {
				if s.Address == addr("10.9.3.7") && s.Node != "host-c" {
					t.Errorf("real server %s is on node %q, want host-c", s, s.Node)
				}
			}
		})
	}
}

// TestMovedServer gives two nodes a record with the same address: the newer one counts.
func TestMovedServer(t *testing.T) {
	d, table := derive.New("a"), kv.NewTable(0, nil)
	now := site()
	delete(now, "reals/site/b/shop2")
	last := now.snapshot()
	d.Update(kv.Update{Snapshot: last, Changed: kv.Diff(table, last)})
	var entries []kv.Entry
	last.Under("")(func(e kv.Entry) bool { entries = append(entries, e); return true })
	moved := kv.Entry{Key: "reals/site/b/shop3", Revision: 2,
		Value: record.Encode(record.Real{Address: addr("10.9.3.7"), Weight: 5})}
	next := kv.NewTable(2, append(entries, moved))
	_, services, problems := d.Update(kv.Update{Snapshot: next, Changed: []string{moved.Key}})
	if len(services) != 1 || len(problems) > 0 || services[0].Reals[2].Weight != 5 || len(services[0].Reals) != 3 {
		t.Errorf("the services are %+v, with problems %q", services, problems)
	}
}

// TestRefusedServices checks what a cluster's service cannot have.
func TestRefusedServices(t *testing.T) {
	for want, change := range map[string]func(*model.VirtualService){
		"":                     func(*model.VirtualService) {},
		"plane nft: want ebpf": func(v *model.VirtualService) { v.Plane = model.PlaneNFT },
		"interface: each node": func(v *model.VirtualService) { v.Interface = "eth0" },
		"noIngress: list":      func(v *model.VirtualService) { v.NoIngress = true },
		"check docker":         func(v *model.VirtualService) { v.Check.Type = model.CheckDocker },
		"check exec: hosts run no": func(v *model.VirtualService) {
			v.Check = model.Check{Type: model.CheckExec, Command: []string{"/bin/true"}}
		},
		"would not return":        func(v *model.VirtualService) { v.Forward = model.ForwardNAT },
		"sandboxes cannot":        func(v *model.VirtualService) { v.Forward = model.ForwardTunnel },
		"state down: drain it":    func(v *model.VirtualService) { v.Reals[0].State = model.RealDown },
		"add network=NAME":        func(v *model.VirtualService) { v.Reals[0].Select.Network = "" },
		"want an address and a p": func(v *model.VirtualService) { v.Ports = nil },
	} {
		r := site()["svcs/site"].(record.Service)
		change(&r.Spec)
		err := r.Validate()
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
