package permission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/networks"
	"fairlead/internal/cluster/record"
	"fairlead/internal/daemon"
	"fairlead/internal/engine"
	"fairlead/internal/health"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"
	"fairlead/test/features"
	"fairlead/test/place"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main})
	os.Exit(m.Run())
}

// records writes the attempts to a store.
type records struct {
	*canaries
	client *kvtest.Client
	count  int
	types  []string
}

// put writes a record.
func (r *records) put(key string, v any) {
	r.Helper()
	result, err := r.client.Commit(r.Context(), kv.Txn{Then: []kv.Change{{Key: key, Value: record.Encode(v)}}})
	if err != nil || !result.Committed {
		r.Fatalf("put %s: %+v, %v", key, result, err)
	}
}

// fill writes a record for each attempt at each field of a type. change completes a copy of the record and returns
// its key; only selects fields by their paths.
func fill[T any](r *records, base T, only string, change func(n int, v *T) (key string)) {
	t := reflect.TypeFor[T]()
	r.types = append(r.types, t.Name())
	for f := range t.Fields() {
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == t.PkgPath() {
			r.types = append(r.types, f.Type.Name())
		}
	}
	for _, f := range fieldsOf(t, func(f reflect.StructField) bool { return f.Tag.Get("json") == "-" }) {
		if !strings.HasPrefix(f.path, only) || f.kind == reflect.TypeFor[json.RawMessage]() {
			continue
		}
		for _, attempt := range attempts(f.kind, r.path(t.Name()+"."+f.path)) {
			v := copied(base)
			r.count++
			key := change(r.count, &v)
			f.in(reflect.ValueOf(&v).Elem(), set(attempt))
			r.put(key, v)
		}
	}
	path := r.path(t.Name() + " as a name")
	for _, name := range []string{path, "../" + filepath.Base(path), strings.TrimPrefix(path, "/")} {
		v := copied(base)
		r.count++
		key := change(r.count, &v)
		rename(&v, name)
		prefix, _, _ := strings.Cut(key, "/")
		r.put(prefix+"/"+name, v)
	}
}

// copied returns a deep copy.
func copied[T any](v T) (c T) {
	if err := json.Unmarshal(record.Encode(v), &c); err != nil {
		panic(err)
	}
	return c
}

// rename gives a record the name of its key.
func rename(v any, name string) {
	switch r := v.(type) {
	case *record.Service:
		r.Spec.Name = name
	case *record.Network:
		r.Spec.Name = name
	case *record.Node:
		r.ID, r.Name = name, name
	}
}

// at returns an address of its own for each number.
func at(first string, n int) netip.Addr {
	a := netip.MustParseAddr(first).As4()
	return netip.AddrFrom4([4]byte{a[0], a[1], a[2] + byte(n/250), byte(1 + n%250)})
}

func service(n int, check model.Check) record.Service {
	return record.Service{Spec: model.VirtualService{Name: fmt.Sprint("s", n),
		Addresses: []netip.Addr{at("198.18.0.0", n)},
		Ports:     []model.PortRange{model.Port(80)}, Proto: model.TCP, Plane: model.PlaneEBPF,
		Forward: model.ForwardDirect,
		Check:   check, Reals: []model.RealServer{{Address: netip.MustParseAddr("192.0.2.7"), Weight: 1}}}}
}

func network(n int, driver model.Driver) record.Network {
	return record.Network{BlockBits: []int{26}, Direct: driver.Traits().Remote, Spec: model.Network{
		Name: fmt.Sprint("n", n), Driver: driver, Subnets: []model.Subnet{{Prefix: netip.PrefixFrom(
			netip.AddrFrom4([4]byte{10, byte(n / 250), byte(n % 250), 0}), 24)}}}}
}

// all writes attempts at each field of all types of records. Node a is the host.
func (r *records) all() {
	r.put("nodes/a", record.Node{ID: "a", Name: "host-a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	r.put("nodes/b", record.Node{ID: "b", Name: "host-b", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}})
	numbered := func(prefix string, names ...string) func(int, string) string {
		return func(n int, _ string) string { return record.Key(prefix, append(names, fmt.Sprint("x", n))...) }
	}
	named := func(v *record.Service, n int) string { *v = renumbered(*v, n); return record.Services + v.Spec.Name }
	fill(r, service(0, model.Check{Type: model.CheckTCP}), "",
		func(n int, v *record.Service) string { return named(v, n) })
	for _, check := range model.CheckTypes() {
		base := model.Check{Type: check, Query: "a.test", Command: []string{r.path("Service.Spec.Check.Command of " +
			string(check))}}
		fill(r, service(0, base), "Spec.Check", func(n int, v *record.Service) string { return named(v, n) })
	}
	encrypted := network(0, model.DriverVXLAN)
	encrypted.Spec.Overlay.Encrypt = true
	for _, base := range []record.Network{network(0, model.DriverVXLAN), network(0, model.DriverRouted), encrypted} {
		fill(r, base, "", func(n int, v *record.Network) string {
			fresh := network(n, v.Spec.Driver)
			v.Spec.Name, v.Spec.Subnets = fresh.Spec.Name, fresh.Spec.Subnets
			if v.Spec.Driver == model.DriverVXLAN {
				v.Spec.Overlay.VNI, v.Spec.Overlay.Port = uint32(1000+n), uint16(20000+n)
			}
			return record.Networks + v.Spec.Name
		})
	}
	each := func(key func(int, string) string) func(int) string { return func(n int) string { return key(n, "") } }
	other(r, record.Node{ID: "x", Name: "x", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9")}},
		each(numbered(record.Nodes)))
	other(r, record.Block{Node: "a"}, func(n int) string { return fmt.Sprintf("blocks/yyy/10.254.%d.64/26", n%250) })
	other(r, record.Move{Node: "a"}, func(n int) string { return fmt.Sprintf("moves/zzz/10.255.254.%d", n%250) })
	other(r, record.NodeKey{}, each(numbered(record.Keys, "zzz")))
	other(r, record.Endpoint{Names: []string{"web"}}, each(numbered(record.Endpoints, "zzz", "b")))
	other(r, record.Real{Address: netip.MustParseAddr("10.255.254.9")}, each(numbered(record.Reals, "s1", "b")))
	other(r, record.Address{Prefix: netip.MustParsePrefix("192.0.2.99/24"), Hold: time.Second},
		func(int) string { return record.Addresses + "192.0.2.99" })
	other(r, record.BGPPeer{Address: netip.MustParseAddr("192.0.2.98"), AS: 1, LocalAS: 1},
		func(int) string { return record.BGPPeers + "192.0.2.98" })
	other(r, record.SelectedSandbox{}, each(numbered(record.Selected, "0", "b")))
	other(r, record.GatewayObject{Spec: json.RawMessage("{}")}, each(numbered(record.Gateway, "http.routers")))
	other(r, record.Meta{ID: "x"}, func(int) string { return record.MetaKey })
	other(r, record.Authority{}, func(int) string { return record.CAKey })
	other(r, record.Removal{}, each(numbered(record.Removals)))
	other(r, record.NodeName{}, each(numbered(record.NodeNames)))
	other(r, record.Alive{}, each(numbered(record.Alives)))
	other(r, record.Clone{}, each(numbered(record.Clones, "b")))
	other(r, record.Token{}, each(numbered(record.Tokens)))
	other(r, record.Sealed{}, each(numbered(record.Certificates)))
	other(r, record.CertificateLock{}, each(numbered(record.CertificateLocks)))
}

// renumbered returns the service with a name and an address of its own.
func renumbered(r record.Service, n int) record.Service {
	fresh := service(n, r.Spec.Check)
	r.Spec.Name, r.Spec.Addresses = fresh.Spec.Name, fresh.Spec.Addresses
	return r
}

// other fills a type whose records need nothing but a key.
func other[T any](r *records, base T, key func(int) string) {
	fill(r, base, "", func(n int, _ *T) string { return key(n) })
}

// host is a daemon in a namespace.
type host struct {
	*daemon.Daemon
	changed chan struct{}
}

// start runs a daemon until the test ends.
func start(t *testing.T) host {
	ns := kerneltest.Netns(t)
	kerneltest.Run(t, ns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "lan")
	for _, link := range []string{"lo", "lan", "eth0"} {
		kerneltest.Run(t, ns, "ip", "link", "set", link, "up")
	}
	kerneltest.Run(t, ns, "ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	k, err := kernel.Open(ns.Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	facts := features.Facts(t)
	s, err := store.OpenFile(store.Places{State: t.TempDir(), Run: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := host{changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	h.Daemon, err = daemon.New(daemon.Config{Kernel: k, Flows: k, Inspector: k, Counters: k, Host: k, Store: s,
		Sandboxes: sandbox.Finder{NetnsDir: t.TempDir()}, Facts: facts, Lasting: s.Lasting(), Passing: s.Passing(),
		DialReal: func(model.VirtualService, model.RealServer) health.DialFunc {
			return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") }
		},
		StartProxy: func(context.Context) (engine.Proxy, error) {
			return proxy.Start(ctx, child.Place{Netns: k.Netns()})
		},
		Log: slog.New(slog.DiscardHandler),
		Changed: func() {
			select {
			case h.changed <- struct{}{}:
			default:
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// serves waits until a real server of a service is up.
func (h host) serves(t *testing.T, name string) {
	t.Helper()
	deadline := time.After(place.Timeout)
	for {
		if v, err := h.Service(name); err == nil && v.Servers[0].State == api.RealUp {
			return
		}
		select {
		case <-h.changed:
		case <-deadline:
			t.Fatalf("timeout: service %s is up", name)
		}
	}
}

// alone implements networks.Containers and networks.Peers: there are no containers, and no node answers.
type alone struct{}

func (alone) FollowContainers(ctx context.Context, _ func(sandbox.ContainerEvent)) { <-ctx.Done() }

func (alone) Peer(context.Context, string, string, any, any) error {
	return errors.New("no route to host")
}

// TestRecords gives a host the records of a cluster in which one field after the other is the path of a file, or a
// number at its limit. The host executes, reads and writes none of these files, and writes only the keys of
// encrypted networks to the directory for them. Another service of the host checks its server with a command in the
// meantime, so the test notices commands.
func TestRecords(t *testing.T) {
	base := t.TempDir()
	cluster := filepath.Join(base, "cluster")
	if err := os.MkdirAll(filepath.Join(cluster, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	shared := kvtest.New()
	r := &records{canaries: newCanaries(t), client: shared.Client()}
	r.all()
	for i, name := range []string{"yyy", "zzz"} {
		n := network(0, model.DriverVXLAN)
		n.Spec.Name, n.Spec.Overlay = name, model.Overlay{VNI: uint32(8 + i), Encrypt: true, Port: uint16(6000 + i)}
		n.Spec.Subnets[0].Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(254 + i), 0, 0}), 16)
		r.put("nets/"+name, n)
	}
	r.watch(base, cluster)
	h := start(t)
	n := networks.New(networks.Config{Host: h, Keys: filepath.Join(cluster, "keys"), Store: r.client, Peers: alone{},
		Containers: alone{}, Every: time.Second, KeyAge: time.Hour, Changed: make(chan struct{}),
		Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.Run(ctx) }()
	problems := 0
	for u := range r.client.Updates(ctx) {
		problems = len(n.Update(ctx, member.Self{Node: "a"}, u))
		if len(block.Own(u.Snapshot, "zzz", "a")) > 0 { // keys are published before, and networks are in their order
			break
		}
	}
	own := service(math.MaxUint8, model.Check{Type: model.CheckExec, Command: []string{r.path("a command of the host")},
		Initial: model.InitialDown, Rise: 1}).Spec
	own.Name, own.Addresses = "own", []netip.Addr{netip.MustParseAddr("203.0.113.9")}
	if _, err := h.SetService(api.ServiceRequest{VirtualService: own}); err != nil {
		t.Fatal(err)
	}
	h.serves(t, "own")
	cancel()
	<-ended
	r.judge(h, problems)
}

// judge checks what the host has done. Most of the records with an attempt are valid, or are refused with a problem.
func (r *records) judge(h host, problems int) {
	r.Helper()
	if got, want := r.touched(), []string{"a command of the host"}; !slices.Equal(got, want) {
		r.Errorf("records have made the host access the files in %q; want only %q", got, want)
	}
	services, networks := h.Services(), h.Networks()
	if len(services) < 100 || len(networks) < 10 || problems < 100 {
		r.Errorf("%d services, %d networks and %d problems: the records were not read", len(services), len(networks),
			problems)
	}
	for _, v := range services {
		if v.Origin == model.FromCluster && (v.Check.Type == model.CheckExec || v.Validate() != nil) {
			r.Errorf("the host has service %s: %+v", v.Name, v.VirtualService)
		}
	}
	slices.Sort(r.types)
	if filled := slices.Compact(r.types); !slices.Equal(filled, declared(r)) {
		r.Errorf("the records are of types %q, and the test fills %q: add the others to it", declared(r), filled)
	}
}

// declared returns the names of the types of records.
func declared(t testing.TB) (names []string) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/cluster/record/record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, is := n.(*ast.TypeSpec); is {
			if _, is := s.Type.(*ast.StructType); is {
				names = append(names, s.Name.Name)
			}
		}
		return true
	})
	slices.Sort(names)
	return names
}
