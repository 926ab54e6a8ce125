package failover_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/daemons"
	client "fairlead/test/failover"
	"fairlead/test/features"
	"fairlead/test/process"
	"fairlead/test/shell"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{daemons.Role: daemons.Main, client.AskRole: client.AskMain})
	os.Exit(m.Run())
}

// vip is the service's address. The client's route to it goes through the host.
var vip = netip.MustParseAddr("192.0.2.80")

// servers lists the sandboxes in which nginx runs.
var servers = []string{"a", "b", "c"}

// world consists of a client, a wire, a host with a daemon, and three nginx servers behind one
// virtual service.
type world struct {
	testing.TB
	*topology.World
	daemon *daemons.Daemon
	nginx  map[string]*child.Process
}

func newWorld(t testing.TB, v model.VirtualService) *world {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	facts := features.Facts(t)
	top, err := topology.New(facts, topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, World: top, nginx: map[string]*child.Process{}}
	t.Cleanup(func() {
		if err := top.Close(); err != nil {
			t.Error(err)
		}
	})
	do := daemons.In(t.TempDir())
	do.TearDown = true
	w.daemon = daemons.New(t, do, top.Server())
	t.Cleanup(w.daemon.Stop)
	shell.Run(t, w.DoClient, "ip route add "+vip.String()+" via 198.51.100.2")
	n := model.Network{Name: "net", Driver: model.DriverBridge,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/24")}}}
	if _, err := admin.CreateNetwork.Do(t.Context(), w.daemon.Client, admin.NetworkRequest{Network: n}); err != nil {
		t.Fatal(err)
	}
	for i, name := range servers {
		w.attach(name, netip.AddrFrom4([4]byte{172, 30, 0, byte(11 + i)}))
		w.start(name)
		v.Reals = append(v.Reals, model.RealServer{Address: netip.AddrFrom4([4]byte{172, 30, 0, byte(11 + i)}),
			Port: 80, Weight: 1})
	}
	v.Name, v.Addresses, v.Ports, v.Proto = "web", []netip.Addr{vip}, []model.PortRange{model.Port(80)}, model.TCP
	if _, err := admin.SetService.Do(t.Context(), w.daemon.Client, api.ServiceRequest{VirtualService: v}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) attach(name string, at netip.Addr) {
	w.Helper()
	box, err := w.Sandbox(name)
	if err != nil {
		w.Fatal(err)
	}
	e := model.Endpoint{Name: name, Network: "net", Sandbox: process.Seen(box), Addresses: []netip.Addr{at}}
	if _, err := admin.Attach.Do(w.Context(), w.daemon.Client, api.AttachRequest{Endpoint: e}); err != nil {
		w.Fatal(err)
	}
}

// start starts nginx in a sandbox and waits until it answers with its name.
func (w *world) start(name string) {
	w.Helper()
	dir := w.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; master_process off; pid nginx.pid; error_log stderr;\nevents { worker_connections 4096; }\n"+
		"http { access_log off; server { listen 80; location / { return 200 \"%s\\n\"; } } }\n", name)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command("nginx", "-p", dir, "-e", "stderr", "-c", config)
	cmd.Stderr = os.Stderr
	p, err := child.Start(w.Context(), cmd, w.InSandbox(name))
	if err != nil {
		w.Fatal(err)
	}
	w.nginx[name] = p
	w.Cleanup(func() { _ = p.Kill() })
	shell.Run(w, w.in(name),
		"for i in $(seq 1500); do ss -Hltn sport = 80 | grep -q . && exit; sleep 0.02; done; exit 1")
}

// asked is a client that sends requests at a fixed rate.
type asked struct {
	w *world
	*process.Process
}

func (w *world) ask(rate int) asked {
	w.Helper()
	return asked{w, process.Start(w, client.AskRole, question(rate), w.Client())}
}

// over ends the client and returns its requests.
func (a asked) over() []failover.Request {
	a.w.Helper()
	var all []failover.Request
	_, err := io.WriteString(a.In, child.Over)
	if err == nil {
		err = json.NewDecoder(a.Out).Decode(&all)
	}
	if err = errors.Join(err, a.In.Close()); err != nil {
		a.w.Fatal(err)
	}
	return all
}

// until polls the daemon until a server has the wanted status.
func (w *world) until(name string, want api.RealStatus) {
	w.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		view, err := w.daemon.Client.Service(w.Context(), "web")
		if err != nil {
			w.Fatal(err)
		}
		for _, r := range view.Servers {
			if r.Endpoint == name && r.State == want {
				return
			}
		}
		if time.Now().After(end) {
			w.Fatalf("%s is not %s: %+v", name, want, view.Servers)
		}
	}
}

// change makes the daemon change the state of a server.
func (w *world) change(name string, do api.RealAction) {
	w.Helper()
	if _, err := admin.ChangeReal.Do(w.Context(), w.daemon.Client,
		api.RealRequest{Service: "web", Real: name, Do: do}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) in(name string) func(func() error) error {
	return func(fn func() error) error { return w.DoSandbox(name, fn) }
}

// question returns the question of all clients, with the given rate per second.
func question(rate int) client.Question {
	return client.Question{Target: vip.String() + ":80", Rate: rate, Timeout: 30 * time.Second}
}

// answers sends requests on new connections until the server answers.
func (w *world) answers(name string) {
	w.Helper()
	by := ""
	for tries := 0; by != name; tries++ {
		if err := w.DoClient(func() (err error) { by, err = client.Get(question(0)); return err }); err != nil ||
			tries > 500 {
			w.Fatalf("%s does not answer: %v", name, err)
		}
	}
}
