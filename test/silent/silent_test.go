// Package silent_test runs the daemon beside others that never answer: a container engine, etcd, an ACME authority
// and the proxy.
package silent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
	"fairlead/test/daemons"
	"fairlead/test/etcd"
	"fairlead/test/place"
	"fairlead/test/process"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{daemons.Role: daemons.Main, daemons.CLIRole: daemons.CLI, serving.Role: serving.Main,
		proxy.Role: proxy.Main, "idle": process.Idle})
	os.Exit(m.Run())
}

// hostAddress is that of the host in the cluster.
const hostAddress = "198.51.100.1"

// most is how much longer an operation may take beside somebody who does not answer. Only the long form, with
// FAIRLEAD_SILENT=1, measures it.
const most = time.Second

// world is a host with a daemon, which is a member of a cluster.
type world struct {
	*testing.T
	host   *netns.Namespace
	daemon *daemons.Daemon
	etcd   *etcd.Cluster
	// engine is the socket of a container engine.
	engine string
	// box is the path of a container's namespace, and shop the reference of an attached sandbox.
	box, shop string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, host: kerneltest.Netns(t)}
	for _, line := range []string{"link set lo up", "link add up0 type veth peer name up1",
		"addr add " + hostAddress + "/24 dev up0",
		"link set up0 up", "link set up1 up"} {
		kerneltest.Run(t, w.host, "ip", strings.Fields(line)...)
	}
	w.etcd = etcd.Start(t, []etcd.Spot{{Host: hostAddress, In: w.host.Do}})
	dir := t.TempDir()
	w.engine = filepath.Join(dir, "engine.sock")
	t.Setenv("DOCKER_HOST", "unix://"+w.engine)
	order := daemons.In(dir)
	order.Docker = filepath.Join(dir, "plugin.sock")
	w.daemon = daemons.New(t, order, child.Place{Netns: w.host.File()})
	t.Cleanup(func() { // it outlives the daemon
		if pid := w.proxy(); pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	sandbox := func() string {
		ns := kerneltest.Netns(t)
		return fmt.Sprint(process.Run(t, "idle", child.Place{Netns: ns.File()}).Cmd.Process.Pid)
	}
	w.shop = "pid:" + sandbox()
	w.box = "/proc/" + sandbox() + "/ns/net"
	w.daemon.Run("cluster", "init", "--etcd", w.etcd.Endpoints()[0], "--address", hostAddress)
	w.daemon.Run("network", "create", "lan", "--subnet", "172.31.0.0/24")
	w.daemon.Run("attach", "lan", w.shop, "--name", "shop")
	w.daemon.Run("publish", "shop", "8080:80", "--via", "proxy")
	w.plugin("CreateNetwork", object{"NetworkID": network,
		"Options":  object{"com.docker.network.generic": object{"driver": "bridge"}},
		"IPv4Data": []object{{"Pool": "172.40.0.0/24", "Gateway": "172.40.0.1/24"}}})
	real := func(address string) model.RealServer {
		return model.RealServer{Address: netip.MustParseAddr(address), Port: 80, Weight: 1}
	}
	if _, err := admin.SetService.Do(t.Context(), w.daemon.Client,
		api.ServiceRequest{VirtualService: model.VirtualService{
			Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, Proto: model.TCP,
			Ports: []model.PortRange{model.Port(80)},
			Reals: []model.RealServer{real("10.0.0.2"), real("10.0.0.3")}}}); err != nil {
		t.Fatal(err)
	}
	return w
}

type object = map[string]any

// The network and the endpoint of a container, as Docker names them.
var (
	network  = strings.Repeat("ab", 32)
	endpoint = strings.Repeat("cd", 32)
)

// plugin calls the driver as a Docker engine does.
func (w *world) plugin(method string, request object) {
	w.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		w.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", w.daemon.Docker)
		}}}
	response, err := client.Post("http://docker/NetworkDriver."+method, "application/json", bytes.NewReader(body))
	if err != nil {
		w.Fatalf("%s: %v", method, err)
	}
	defer response.Body.Close()
	var answer struct{ Err string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Err != "" {
		w.Fatalf("%s: %v %s", method, err, answer.Err)
	}
}

// operations are what must not wait for others: the calls that a Docker engine makes for `docker run` and the end of
// its container, `fairlead ls`, and a drain.
func (w *world) operations() map[string]func() {
	real := func(do api.RealAction) {
		if _, err := admin.ChangeReal.Do(w.Context(), w.daemon.Client, api.RealRequest{Service: "web", Real: "10.0.0.2",
			Do: do}); err != nil {
			w.Fatal(err)
		}
	}
	return map[string]func(){
		"docker run": func() {
			at := object{"NetworkID": network, "EndpointID": endpoint, "Options": object{}}
			w.plugin("CreateEndpoint", object{"NetworkID": network, "EndpointID": endpoint, "Options": object{},
				"Interface": object{"Address": "172.40.0.10/24"}})
			w.plugin("Join", object{"NetworkID": network, "EndpointID": endpoint, "Options": object{},
				"SandboxKey": w.box})
			w.plugin("ProgramExternalConnectivity", at)
			for _, method := range []string{"RevokeExternalConnectivity", "Leave", "DeleteEndpoint"} {
				w.plugin(method, at)
			}
		},
		"fairlead ls": func() { w.daemon.Run("ls") },
		"drain":       func() { real(api.DrainReal); real(api.EnableReal) },
	}
}

// measured returns the longest of several runs of each operation; in the short form, it runs each once.
func (w *world) measured() map[string]time.Duration {
	rounds := 1
	if os.Getenv("FAIRLEAD_SILENT") != "" {
		rounds = 10
	}
	all := map[string]time.Duration{}
	for range rounds {
		for name, do := range w.operations() {
			began := time.Now()
			do()
			all[name] = max(all[name], time.Since(began))
		}
	}
	return all
}

// compare runs the operations beside somebody who does not answer.
func (w *world) compare(who string, before map[string]time.Duration) {
	w.Helper()
	for name, took := range w.measured() {
		if os.Getenv("FAIRLEAD_SILENT") == "" {
			continue // nothing is measured on a busy machine
		}
		w.Logf("%-14s silent: %-12s %8.1f ms, without %8.1f ms", who, name, took.Seconds()*1000,
			before[name].Seconds()*1000)
		if took > before[name]+most {
			w.Errorf("%s takes %v beside a silent %s, and %v without", name, took, who, before[name])
		}
	}
}

// proxy returns the process id of the proxy: it writes the proxy's log.
func (w *world) proxy() int {
	outputs, err := filepath.Glob("/proc/[0-9]*/fd/2")
	if err != nil {
		w.Fatal(err)
	}
	for _, output := range outputs {
		if to, err := os.Readlink(output); err == nil && to == filepath.Join(w.daemon.Order.Run, "proxy.log") {
			if pid, err := strconv.Atoi(strings.Split(output, "/")[2]); err == nil {
				return pid
			}
		}
	}
	return 0
}

// tries runs a command that waits for somebody who does not answer, and returns what is closed when it has ended.
func (w *world) tries(args ...string) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() { defer close(done); _, _ = w.daemon.Try(args...) }()
	return done
}

// declared writes a gateway with these lines, and returns the file.
func (w *world) declared(lines string) string {
	w.Helper()
	file := filepath.Join(w.TempDir(), "fairlead.yaml")
	text := "gateway:\n  entryPoints:\n    web: {address: \"127.0.0.1:88\"}\n" + lines
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	return file
}

// silence accepts connections, and answers none of them until the test ends.
func silence(t *testing.T) func(net.Conn) { return func(net.Conn) { <-t.Context().Done() } }

// TestSilentParties: `docker run`, `fairlead ls` and drains do not wait for an engine, etcd, an ACME authority or a
// proxy that do not answer, each in turn, while another request waits for them.
func TestSilentParties(t *testing.T) {
	w := newWorld(t)
	w.measured() // the first of each takes longer
	before := w.measured()
	pid := w.proxy()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatalf("stop the proxy %d: %v", pid, err)
	}
	waits := w.tries("publish", "shop", "8081:80", "--via", "proxy")
	w.compare("proxy", before)
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-waits

	w.etcd.Members[0].Stop()
	waits = w.tries("cluster", "token", "create")
	w.compare("etcd", before)
	w.etcd.Members[0].Continue()
	<-waits

	engine, err := net.Listen("unix", w.engine)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	go place.Accept(engine, silence(t))
	waits = w.tries("apply", "-f", w.declared("  providers: {docker: {endpoint: \"unix://"+w.engine+"\"}}\n"))
	w.compare("engine", before)
	<-waits
	engine.Close()

	place.Serve(t, w.host.Do, "127.0.0.1:14000", silence(t))
	resolver := func(mail string) string {
		return w.declared(`  certificatesResolvers:
    le: {acme: {email: "` + mail + `", caServer: "https://127.0.0.1:14000/directory", httpChallenge: {entryPoint: web}}}
  http:
    routers:
      a: {rule: Host(` + "`a.test`" + `), service: s, tls: {certResolver: le}}
    services:
      s: {loadBalancer: {servers: [{url: "http://127.0.0.1:80"}]}}
`)
	}
	w.daemon.Run("apply", "-f", resolver("a@a.test"))
	waits = w.tries("apply", "-f", resolver("b@a.test")) // ends the attempts of the earlier settings
	w.compare("authority", before)
	<-waits
}
