package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
	"fairlead/internal/model"
	"fairlead/internal/store"
)

// hostileProcessRole is a listening process with a hostile name.
const hostileProcessRole = "hostileProcess"

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{
		commandRole:        commandProcess,
		hostileProcessRole: hostileProcess,
		unprivilegedRole:   unprivileged,
	})
	os.Exit(m.Run())
}

// forged is the text that a hostile name tries to put at the beginning of a line.
const forged = "FORGED"

// hostileName is a hostile name. It contains a colour sequence, line breaks,
// right-to-left text and invisible characters.
const hostileName = "x\x1b[31m\n" + forged + " row\r\u202egnp\u200b\u0085\t\x7f"

// hostileProcess gives its process a hostile name and listens until its input ends.
func hostileProcess() int {
	if err := os.WriteFile("/proc/self/comm", []byte("x\x1b[1m\n"+forged+"\xff"), 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, at := range os.Args[1:] {
		if _, err := net.Listen("tcp", at); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

// world is a script that sets up a host with hostile names of links, a named
// namespace, comments of rules, and processes.
const world = `
mount --make-rprivate /
mkdir -p /run/netns
mount -t tmpfs none /run/netns
evil=$(printf 'e\033[7m\342\200\256x')
ip link set lo up
ip link add "$evil" type veth peer name lan
ip link add '$(>canary)' type bridge
ip address add 192.0.2.10/24 dev "$evil"
ip link set "$evil" up
ip link set lan up
ip link set '$(>canary)' mtu 9000 up
ip route add default via 192.0.2.1
ip netns add web
ip netns add "$(printf 'web\nFORGED\033[31m')"
ip link add box type veth peer name inside
ip address add 10.0.0.1/24 dev box
ip link set box up
ip link set inside netns web name "$evil"
ip -n web link set lo up
ip -n web address add 10.0.0.2/24 dev "$evil"
ip -n web link set "$evil" up
ip -n web route add default via 10.0.0.1
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=0
echo 1 > "/proc/sys/net/ipv4/conf/\$(>canary)/route_localnet"
nft -f - <<END
table ip others {
	chain pre { type nat hook prerouting priority dstnat; tcp dport 8080 dnat to 10.0.0.2:80 comment "c$evil"; }
	chain in { type filter hook forward priority 0; tcp dport 81 drop comment "c$evil"; }
}
END
exec "$@"
`

// hostileHost sets up the host and returns nsenter's arguments that enter it.
func hostileHost(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := startHostileProcess(t, exec.Command("unshare", "--net", "--mount", "sh", "-euc", world, "sh", self,
		"0.0.0.0:9000", "127.0.0.1:2375"))
	at := "/proc/" + strconv.Itoa(host.Process.Pid) + "/ns/"
	enter := []string{"--net=" + at + "net", "--mount=" + at + "mnt", "--"}
	startHostileProcess(t, exec.Command("nsenter", append(enter, "ip", "netns", "exec", "web", self, "0.0.0.0:80")...))
	return enter
}

// startHostileProcess starts a hostileProcess, waits until it listens, and ends it with the
// test.
func startHostileProcess(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	cmd.Env = append(os.Environ(), child.Role+"="+hostileProcessRole)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	word := make([]byte, len("ready\n"))
	if _, err := out.Read(word); err != nil || string(word) != "ready\n" {
		t.Fatalf("the listener says %q, %v", word, err)
	}
	return cmd
}

// filled returns a value with a hostile name in each text, and with two elements
// in each list.
func filled[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem(), 0)
	return v
}

func fill(v reflect.Value, depth int) {
	if _, marshals := v.Addr().Interface().(json.Unmarshaler); marshals && v.Kind() != reflect.String || depth > 8 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostileName)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
			if v.Type().Field(i).Name == "Plan" { // commands, one per line
				v.Field(i).SetString(strings.ReplaceAll(hostileName, "\n", " "))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}

// hostileDaemon is a daemon that answers with hostile names, or with errors that contain
// them, or that has nothing.
type hostileDaemon struct{ refuses, empty bool }

// answer returns what a hostileDaemon has.
func answer[T any](l hostileDaemon) (v T) {
	if l.empty {
		return v
	}
	return filled[T]()
}

func reply[T any](l hostileDaemon) (v T, err error) {
	if l.refuses {
		return v, &api.Fault{Code: api.Failed,
			Err: fmt.Errorf("name %s: %w", hostileName, fmt.Errorf("again %s", hostileName))}
	}
	return answer[T](l), nil
}

func (l hostileDaemon) Attach(context.Context, api.AttachRequest) (api.Result, error) {
	return reply[api.Result](l)
}
func (l hostileDaemon) Detach(context.Context, api.DetachRequest) (api.Result, error) {
	return reply[api.Result](l)
}
func (l hostileDaemon) Publish(context.Context, api.PublishRequest) (api.Result, error) {
	return reply[api.Result](l)
}
func (l hostileDaemon) Unpublish(context.Context, api.PublishRequest) (api.Result, error) {
	return reply[api.Result](l)
}
func (l hostileDaemon) CreateNetwork(model.Network, bool) (api.Result, error) {
	return reply[api.Result](l)
}
func (l hostileDaemon) RemoveNetwork(string) (api.Result, error) { return reply[api.Result](l) }
func (l hostileDaemon) CheckNetwork(context.Context, string) ([]api.PeerPathView, error) {
	return reply[[]api.PeerPathView](l)
}
func (l hostileDaemon) SetService(api.ServiceRequest) (api.Result, error) {
	return reply[api.Result](l)
}
func (l hostileDaemon) RemoveService(string, bool) (api.Result, error) {
	return reply[api.Result](l)
}
func (l hostileDaemon) ChangeReal(api.RealRequest) (api.Result, error) {
	return reply[api.Result](l)
}
func (l hostileDaemon) Services() []api.ServiceView { return answer[[]api.ServiceView](l) }
func (l hostileDaemon) Service(string) (api.ServiceView, error) {
	return reply[api.ServiceView](l)
}
func (l hostileDaemon) State() (api.Spec, []string) {
	return answer[api.Spec](l), answer[[]string](l)
}
func (l hostileDaemon) Editable() (api.Spec, []string) { return l.State() }
func (l hostileDaemon) Attachments() []api.View        { return answer[[]api.View](l) }
func (l hostileDaemon) Networks() []model.Network      { return answer[[]model.Network](l) }
func (l hostileDaemon) Unavailable() map[string]string { return answer[map[string]string](l) }
func (l hostileDaemon) Outbound() map[string]api.OutboundChoice {
	return answer[map[string]api.OutboundChoice](l)
}
func (l hostileDaemon) Events() []api.Event             { return answer[[]api.Event](l) }
func (l hostileDaemon) Stats(context.Context) api.Stats { return answer[api.Stats](l) }
func (l hostileDaemon) Fill() api.Stats                 { return answer[api.Stats](l) }
func (l hostileDaemon) FollowEvents(context.Context) <-chan api.Event {
	events := make(chan api.Event, 1)
	if l.empty {
		close(events)
		return events
	}
	e := filled[api.Event]()
	e.Time, e.Object = time.Now().Add(time.Hour), "service "+hostileName
	events <- e
	close(events)
	return events
}

func (l hostileDaemon) Apply(context.Context, api.Spec, bool) (api.Result, error) {
	if l.refuses {
		return api.Result{}, &api.Fault{Code: api.Invalid,
			Err: api.Mistakes{{At: hostileName, Text: hostileName}, {At: "networks[0]", Text: hostileName}}}
	}
	return reply[api.Result](l)
}

// hostileCluster is the cluster of a hostileDaemon.
type hostileCluster struct{ hostileDaemon }

func (l hostileCluster) fail() error { _, err := reply[api.Result](l.hostileDaemon); return err }

func (l hostileCluster) Init(context.Context, api.ClusterInit) error          { return l.fail() }
func (l hostileCluster) Join(context.Context, api.ClusterJoin) error          { return l.fail() }
func (l hostileCluster) Drain(context.Context, api.ClusterNodeRequest) error  { return l.fail() }
func (l hostileCluster) Remove(context.Context, api.ClusterNodeRequest) error { return l.fail() }
func (l hostileCluster) Accept(context.Context) error                         { return l.fail() }
func (l hostileCluster) SetEtcd(context.Context, api.EtcdAccess) error        { return l.fail() }
func (l hostileCluster) SetHost(context.Context, api.ClusterHost) error       { return l.fail() }
func (l hostileCluster) RemoveToken(context.Context, string) error            { return l.fail() }
func (l hostileCluster) Leave(context.Context, api.ClusterNodeRequest) ([]string, error) {
	return []string{hostileName}, l.fail()
}
func (l hostileCluster) CreateToken(context.Context, api.ClusterTokenRequest) (api.ClusterToken, error) {
	return reply[api.ClusterToken](l.hostileDaemon)
}
func (l hostileCluster) Tokens() ([]api.ClusterToken, error) {
	return reply[[]api.ClusterToken](l.hostileDaemon)
}
func (l hostileCluster) Status(context.Context, bool) (api.ClusterStatus, error) {
	if l.empty {
		return api.ClusterStatus{}, api.Faultf(api.NotFound, "this host belongs to no cluster")
	}
	return reply[api.ClusterStatus](l.hostileDaemon)
}

func (l hostileCluster) Objects() ([]api.ClusterObject, error) {
	return reply[[]api.ClusterObject](l.hostileDaemon)
}

func (l hostileCluster) ExplainFlow(context.Context, api.FlowQuestion) (api.FlowPart, error) {
	return reply[api.FlowPart](l.hostileDaemon)
}

// hostileAddresses are the virtual addresses of a hostileCluster.
type hostileAddresses struct{ hostileDaemon }

func (l hostileAddresses) AddAddress(context.Context, api.ClusterAddressSpec) (api.Result, error) {
	return reply[api.Result](l.hostileDaemon)
}
func (l hostileAddresses) MoveAddress(context.Context, api.ClusterAddressRequest) (api.Result, error) {
	return reply[api.Result](l.hostileDaemon)
}
func (l hostileAddresses) RemoveAddress(context.Context, api.ClusterAddressRequest) (api.Result, error) {
	return reply[api.Result](l.hostileDaemon)
}
func (l hostileAddresses) ClaimAddress(context.Context, api.ClusterAddressRequest) (api.Result, error) {
	return reply[api.Result](l.hostileDaemon)
}
func (l hostileAddresses) List() ([]api.ClusterAddress, error) {
	return reply[[]api.ClusterAddress](l.hostileDaemon)
}

// hostileBGP are the routers of a hostileCluster.
type hostileBGP struct{ hostileDaemon }

func (l hostileBGP) AddPeer(context.Context, api.ClusterBGPPeer) (api.Result, error) {
	return reply[api.Result](l.hostileDaemon)
}
func (l hostileBGP) RemovePeer(context.Context, api.ClusterBGPPeerRequest) (api.Result, error) {
	return reply[api.Result](l.hostileDaemon)
}
func (l hostileBGP) Peers() ([]api.ClusterBGPSession, error) {
	return reply[[]api.ClusterBGPSession](l.hostileDaemon)
}

func (hostileDaemon) Changes() uint64 { return 0 }

// serveHostileDaemon serves a hostileDaemon and returns its socket.
func serveHostileDaemon(t *testing.T, l hostileDaemon) (socket string) {
	t.Helper()
	return admintest.Serve(t, admin.Daemon{Attachments: l, Publishes: l, Networks: l, Services: l, Specs: l, Events: l,
		Stats: l, Cluster: hostileCluster{l}, ClusterTokens: hostileCluster{l}, ClusterAddresses: hostileAddresses{l},
		ClusterBGP: hostileBGP{l}})
}

// damagedStore writes a store with a hostile name, whose database is damaged.
func damagedStore(t *testing.T, dir string) {
	t.Helper()
	at := store.Places{State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run")}
	f, err := store.OpenFile(at)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(f.SaveDesired(model.Desired{Networks: []model.Network{{Name: hostileName}}}), f.Close(),
		os.WriteFile(filepath.Join(at.State, "fairlead.db"), []byte(hostileName), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// hostileFiles writes the files that commands read.
func hostileFiles(t *testing.T) string {
	dir := t.TempDir()
	damagedStore(t, dir)
	yaml := strings.NewReplacer("EVIL", `"x\e[31m\n`+forged+`\u202e\u200b"`)
	word := strings.ReplaceAll(hostileName, "\n", " ")
	report, err := os.ReadFile("../lab/report/testdata/synthetic.json")
	if err != nil {
		t.Fatal(err)
	}
	named, err := json.Marshal("nat" + hostileName)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"keys.yaml": yaml.Replace("networks: {EVIL: {driver: bridge, EVIL: 1}}\nEVIL: 2\n"),
		"values.yaml": yaml.Replace("networks: {a: {driver: EVIL, subnet: EVIL, parent: EVIL}}\n" +
			"attachments: [{sandbox: EVIL, network: EVIL, publish: [EVIL]}]\nservices: {EVIL: {address: EVIL}}\n"),
		"good.yaml":   "networks: {a: {driver: bridge, subnet: 172.30.0.0/24}}\n",
		"broken.yaml": "a: \x1b[31m\n" + forged + ": [\u202e",
		"keepalived.conf": "virtual_server 192.0.2.1 80 {\n " + word +
			" 3\n real_server 10.0.0.2 80 {\n TCP_CHECK {\n connect_timeout " + word + "\n}\n}\n}\n",
		"report.json":  strings.ReplaceAll(string(report), `"nat"`, string(named)),
		"garbage.json": hostileName,
		"history.jsonl": `{"schema":1,"report":{"suite":` + string(named) + `,"started":"2026-11-01T08:00:00Z","host":{"kernel":` +
			string(named) + `},"summary":[{"path":` + string(named) + `,"client":"remote","workload":"tcp-bulk",` +
			`"metric":"throughput","baseline":"host","ratio":0.9,"rounds":3}]}}` + "\n" + hostileName,
		"gateway.yml": "http: {routers: {" + string(named) + ": {rule: " + string(named) + ", service: " +
			string(named) + "}}}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
