package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
	"fairlead/test/place"
)

// site returns a service at 192.0.2.10:80 with these real servers.
func site(name string, reals ...model.RealServer) model.VirtualService {
	return model.VirtualService{Name: name, Addresses: addrs("192.0.2.10"), Ports: []model.PortRange{model.Port(80)},
		Proto: model.TCP, Reals: reals}
}

func at(addr string, port uint16) model.RealServer {
	return model.RealServer{Address: netip.MustParseAddr(addr), Port: port, Weight: 1}
}

func (w *world) serve(v model.VirtualService) {
	w.Helper()
	if _, err := w.SetService(api.ServiceRequest{VirtualService: v}); err != nil {
		w.Fatal(err)
	}
}

// servers returns the states of a service's real servers: "10.0.0.2:80 up, …".
func (w *world) servers(name string) string {
	w.Helper()
	v, err := w.Service(name)
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for _, s := range v.Servers {
		all = append(all, fmt.Sprintf("%s %s", model.RealServer{Address: s.Address, Port: s.Port}, s.State))
	}
	return strings.Join(all, ", ")
}

func (w *world) stands(name, want string) {
	w.Helper()
	w.until("service "+name+" has "+want, func() bool { return w.servers(name) == want })
}

func (w *world) do(action api.RealAction, service, real string) api.Result {
	w.Helper()
	r, err := w.ChangeReal(api.RealRequest{Service: service, Real: real, Do: action})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// happened returns the events of services since the daemon started.
func (w *world) happened() []string {
	var all []string
	for _, e := range w.Events() {
		if strings.HasPrefix(e.Object, "service ") {
			all = append(all, fmt.Sprintf("%s: %s", e.Object, e.Kind))
		}
	}
	return all
}

// TestServices creates, changes and removes services, and refuses conflicts.
func TestServices(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	web := site("web", at("10.0.0.2", 8080), at("10.0.0.3", 8080))
	w.serve(web)
	if got := w.servers("web"); got != "10.0.0.2:8080 up, 10.0.0.3:8080 up" {
		t.Error(got)
	}
	r, err := w.SetService(api.ServiceRequest{VirtualService: web, Create: true})
	if err != nil || r.Changed {
		t.Errorf("create again: %+v, %v", r, err)
	}
	other := web.Clone()
	other.Scheduler = model.RoundRobin
	dry, err := w.SetService(api.ServiceRequest{VirtualService: other, DryRun: true})
	if err != nil || !dry.Changed || !strings.Contains(dry.Plan, "rr") {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	clash := site("clash", at("10.0.0.9", 0))
	bad := site("bad", at("192.0.2.10", 80))
	for _, c := range []struct {
		request api.ServiceRequest
		want    api.Code
	}{
		{api.ServiceRequest{VirtualService: other, Create: true}, api.Conflict},
		{api.ServiceRequest{VirtualService: web, Was: &other}, ""},
		{api.ServiceRequest{VirtualService: other, Was: &other}, api.Conflict},
		{api.ServiceRequest{VirtualService: clash}, api.Conflict},
		{api.ServiceRequest{VirtualService: bad}, api.Invalid},
	} {
		_, err := w.SetService(c.request)
		if err == nil && c.want != "" || err != nil && api.CodeOf(err) != c.want {
			t.Errorf("%+v: %v; want %q", c.request, err, c.want)
		}
	}
	if _, err := w.Service("clash"); api.CodeOf(err) != api.NotFound {
		t.Errorf("a refused service exists: %v", err)
	}
	if _, err := w.RemoveService("web", false); err != nil {
		t.Fatal(err)
	}
	if r, err := w.RemoveService("web", false); err != nil || r.Changed || len(r.Notes) != 1 {
		t.Errorf("nothing to remove: %+v, %v", r, err)
	}
	w.unchanged(before)
	if !w.Empty() {
		t.Error("the daemon is not empty")
	}
}

// TestDrain drains real servers with a command and by removing them from the service.
// The next daemon continues the drains.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	live := map[netip.AddrPort]uint64{}
	w.counts = func([]model.VirtualService) (stats.RealCounts, error) {
		all := stats.RealCounts{}
		for at, n := range live {
			all.Add("web", at, stats.RealCount{Live: n})
		}
		return all, nil
	}
	two, three := netip.MustParseAddrPort("10.0.0.2:8080"), netip.MustParseAddrPort("10.0.0.3:8080")
	live[two], live[three] = 1, 1
	w.start()
	w.serve(site("web", at("10.0.0.2", 8080), at("10.0.0.3", 8080)))
	if r := w.do(api.DrainReal, "web", "10.0.0.2"); len(r.Notes) != 0 {
		t.Errorf("notes: %q", r.Notes)
	}
	if got := w.servers("web"); got != "10.0.0.2:8080 draining, 10.0.0.3:8080 up" {
		t.Error(got)
	}
	if r := w.do(api.RemoveReal, "web", "10.0.0.3:8080"); len(r.Services) != 1 || !r.Services[0].Servers[1].Leaving {
		t.Errorf("%+v", r)
	}

	w.stop()
	w.start()
	if got := w.servers("web"); got != "10.0.0.2:8080 draining, 10.0.0.3:8080 draining" {
		t.Errorf("after a restart: %s", got)
	}
	w.stop()
	live = map[netip.AddrPort]uint64{two: 0, three: 0}
	w.start()
	w.stands("web", "10.0.0.2:8080 drained")

	if r := w.do(api.EnableReal, "web", "10.0.0.2"); !r.Changed {
		t.Error("nothing changed")
	}
	if r, err := w.ChangeReal(api.RealRequest{Service: "web", Real: "10.0.0.2", Do: api.DrainReal,
		Now: true}); err != nil || len(r.Notes) != 1 {
		t.Errorf("drain the last real server: %+v, %v", r, err)
	}
	if got := w.servers("web"); got != "10.0.0.2:8080 drained" {
		t.Error(got)
	}
	if _, err := w.ChangeReal(api.RealRequest{Service: "web", Real: "10.0.0.7",
		Do: api.DrainReal}); api.CodeOf(err) != api.NotFound {
		t.Errorf("drain an unknown real server: %v", err)
	}
}

// TestChecks: a real server that does not answer is taken out, the service loses its
// quorum, and the sorry server is used. A restart of the daemon keeps this.
func TestChecks(t *testing.T) {
	w := newWorld(t)
	w.sh("ip link set lo up; ip addr add 10.0.0.2/32 dev lo; ip addr add 10.0.0.3/32 dev lo")
	w.start()
	stop := w.serves("10.0.0.2:8080")
	v := site("web", at("10.0.0.2", 8080), at("10.0.0.3", 8080))
	v.Check = model.Check{Type: model.CheckTCP, Interval: 20 * time.Millisecond, Timeout: place.Timeout, Fall: 1,
		Rise: 1}
	v.Sorry = netip.MustParseAddrPort("10.0.0.9:80")
	w.serve(v)
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 down")
	stop()
	w.stands("web", "10.0.0.2:8080 down, 10.0.0.3:8080 down, 10.0.0.9:80 sorry")
	w.stop()
	w.start()
	if got := w.servers("web"); got != "10.0.0.2:8080 down, 10.0.0.3:8080 down, 10.0.0.9:80 sorry" {
		t.Errorf("after a restart: %s", got)
	}
	w.serves("10.0.0.2:8080")
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 down")
	want := []string{"service web real 10.0.0.2:8080: up", "service web: quorum gained", "service web: recovered"}
	if got := w.happened(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestUncheckable: the cause of a real server says that it is up only because this
// host cannot check it.
func TestUncheckable(t *testing.T) {
	w := newWorld(t).start()
	v := site("web", at("10.0.0.2", 8080))
	v.Check = model.Check{Type: model.CheckExec, Command: []string{"/no/such/command"}, Interval: 20 * time.Millisecond}
	w.serve(v)
	cause := func() string {
		view, err := w.Service("web")
		if err != nil || view.Servers[0].State != api.RealUp {
			t.Fatalf("%+v, %v", view.Servers, err)
		}
		return view.Servers[0].Cause
	}
	const want = "this host cannot check: start /no/such/command"
	for deadline := time.Now().Add(place.Timeout); !strings.HasPrefix(cause(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q, want %q", cause(), want)
		}
	}
	v.Check = model.Check{}
	w.serve(v)
	if got := cause(); got != "" {
		t.Errorf("without a check the cause is %s, want none", got)
	}
}

// TestSelected follows containers. Those that are attached and have the label are real
// servers. A container that is paused or stopped drains at once, until it runs again.
// A container that ends is removed.
func TestSelected(t *testing.T) {
	w := newWorld(t)
	events := make(chan sandbox.ContainerEvent)
	w.containers = engineOf(events)
	w.start()
	w.network(lan)
	a, b := w.watchedSandbox(), w.watchedSandbox()
	v := site("web", model.RealServer{Select: model.Select{Label: "app=web"}, Port: 8080, Weight: 1},
		model.RealServer{Select: model.Select{Name: "other*"}, Weight: 2})
	w.serve(v)
	if got := w.servers("web"); got != "" {
		t.Errorf("nothing is attached, but the service has %s", got)
	}
	one := w.attach(to(a)).Attachments[0]
	two := to(b)
	two.Name = "other"
	w.attach(two)
	w.stands("web", "172.30.0.3 up")
	notify := func(n sandbox.ContainerEvent) {
		n.Refs = []string{one.Ref}
		events <- n
	}
	notify(sandbox.ContainerEvent{Name: "shop", Labels: map[string]string{"app": "web"}, Started: "1"})
	w.stands("web", "172.30.0.2:8080 up, 172.30.0.3 up")
	shop := sandbox.ContainerEvent{Name: "shop", Labels: map[string]string{"app": "web"}, Started: "1"}
	shop.Paused = true
	notify(shop)
	w.stands("web", "172.30.0.2:8080 draining, 172.30.0.3 up")
	shop.Paused = false
	notify(shop)
	w.stands("web", "172.30.0.2:8080 up, 172.30.0.3 up")
	notify(sandbox.ContainerEvent{Stopping: "SIGTERM"})
	w.stands("web", "172.30.0.2:8080 draining, 172.30.0.3 up")
	notify(shop) // it still runs
	w.stands("web", "172.30.0.2:8080 draining, 172.30.0.3 up")
	shop.Started = "2"
	notify(shop)
	w.stands("web", "172.30.0.2:8080 up, 172.30.0.3 up")
	a.kill()
	w.stands("web", "172.30.0.3 up")
	if got := w.happened(); !slices.Contains(got, "service web real 172.30.0.2:8080: joined") ||
		!slices.Contains(got, "service web real 172.30.0.2:8080: draining") {
		t.Errorf("%q", got)
	}
}

// meterFunc is called whenever the desired state was applied.
type meterFunc func()

func (f meterFunc) Applied(time.Duration, error) { f() }
func (meterFunc) Healed(string, int)             {}

// TestSelectedAtOnce attaches a sandbox that a service selects: the first state that is
// applied with the sandbox has it as a real server at the address that it gets.
func TestSelectedAtOnce(t *testing.T) {
	w := newWorld(t)
	reals := make(chan []model.RealServer, 1)
	var attaching atomic.Bool
	w.meter = meterFunc(func() {
		if !attaching.Load() {
			return
		}
		r, err := w.record()
		if _, attached := r.Applied.Endpoint("other"); err == nil && attached {
			select {
			case reals <- r.Applied.Services[0].Reals:
			default: // a later state
			}
		}
	})
	w.start()
	w.network(lan)
	w.serve(site("web", model.RealServer{Select: model.Select{Name: "other*"}, Port: 8080, Weight: 1}))
	other := to(w.watchedSandbox())
	other.Name = "other"
	attaching.Store(true)
	w.attach(other)
	if first := <-reals; len(first) != 1 || first[0].Address != netip.MustParseAddr("172.30.0.2") {
		t.Errorf("the state that is applied first has the real servers %v", first)
	}
	if got := w.servers("web"); got != "172.30.0.2:8080 up" {
		t.Errorf("the service has %q", got)
	}
}

// engineOf reports the events that are sent on a channel.
type engineOf chan sandbox.ContainerEvent

func (e engineOf) FollowContainers(ctx context.Context, notify func(sandbox.ContainerEvent)) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-e:
			notify(n)
		}
	}
}

// TestDeclaredServices applies, changes and reads the services of a file, and reports
// mistakes with their part.
func TestDeclaredServices(t *testing.T) {
	w := newWorld(t).start()
	web := site("web", at("10.0.0.2", 8080))
	r, err := w.Apply(context.Background(), api.Spec{Services: []model.VirtualService{web}}, false)
	if err != nil || fmt.Sprint(r.Changes) != "[service web: created]" {
		t.Fatalf("%+v, %v", r, err)
	}
	got, notes := w.State()
	if len(got.Services) != 1 || len(notes) != 0 {
		t.Fatalf("%+v %q", got, notes)
	}
	if r, err := w.Apply(context.Background(), got, false); err != nil || r.Changed {
		t.Errorf("apply the current state: %+v, %v", r, err)
	}
	if _, err := w.RemoveService("web", false); api.CodeOf(err) != api.Conflict {
		t.Errorf("a command removes a declared service: %v", err)
	}
	w.do(api.DrainReal, "web", "10.0.0.2")
	if r, err := w.Apply(context.Background(), got, false); err != nil || r.Changed {
		t.Errorf("apply after a drain: %+v, %v", r, err)
	}
	wrong := []model.VirtualService{site("a", at("10.0.0.2", 80), at("fd00::1", 80)), site("b"), site("a"), {Name: "c"}}
	_, err = w.Apply(context.Background(), api.Spec{Services: wrong}, true)
	if err == nil {
		t.Fatal("mistakes are applied")
	}
	for _, want := range []string{"services[2]: service a is declared twice",
		"services[3]: want an address and a port"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	if r, err := w.Apply(context.Background(), api.Spec{}, false); err != nil ||
		fmt.Sprint(r.Changes) != "[service web: removed]" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRealServersOfThePort: a real server without a port of its own has the port of its
// service, if that is the only one. An ambiguous name is refused.
func TestRealServersOfThePort(t *testing.T) {
	w := newWorld(t).start()
	v := site("web", at("10.0.0.2", 0), at("10.0.0.3", 8080), at("10.0.0.3", 8081))
	w.serve(v)
	port := v.Ports[0].First
	if _, err := w.ChangeReal(api.RealRequest{Service: "web", Real: "10.0.0.3",
		Do: api.RemoveReal}); api.CodeOf(err) != api.Invalid {
		t.Errorf("remove one of two real servers at an address: %v, want a refusal", err)
	}
	for _, other := range []string{"10.0.0.2:1", "10.0.0.4", "10.0.0.4:80"} {
		if r := w.do(api.RemoveReal, "web", other); r.Changed || len(r.Notes) != 1 {
			t.Errorf("remove %s: %+v, want nothing to do", other, r)
		}
	}
	r, err := w.ChangeReal(api.RealRequest{Service: "web", Real: fmt.Sprintf("10.0.0.2:%d", port), Do: api.RemoveReal,
		Now: true})
	if err != nil || !r.Changed {
		t.Errorf("remove 10.0.0.2:%d: %+v, %v", port, r, err)
	}
	w.stands("web", "10.0.0.3:8080 up, 10.0.0.3:8081 up")
}
