package arch_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead/test/arch"
)

// TestImports checks the project against the rules. Tests may import any package: a driver's test
// may inspect the kernel.
func TestImports(t *testing.T) {
	graph := load(t)
	if len(graph["fairlead/internal/plan"]) == 0 {
		t.Fatal("the import graph lacks internal/plan")
	}
	for _, broken := range arch.Check(graph, arch.Rules) {
		t.Error(broken)
	}
}

// TestDaemonsPackagesHaveAnOrder checks that the order contains every package of the daemon.
func TestDaemonsPackagesHaveAnOrder(t *testing.T) {
	for path := range load(t) {
		pkg := strings.TrimPrefix(path, arch.Module)
		if strings.HasPrefix(pkg+"/", "internal/daemon/") && !slices.Contains(arch.DaemonOrder, pkg) &&
			pkg != "internal/daemon/daemontest" {
			t.Errorf("%s is missing in DaemonOrder", pkg)
		}
	}
}

// TestRulesCanFail breaks every rule on a constructed graph.
func TestRulesCanFail(t *testing.T) {
	type scenario struct {
		name     string
		pkg      string
		imported string
		want     bool // allowed
	}
	scenarios := []scenario{
		{"model may use the standard library", "internal/model", "net/netip", true},
		{"model may not use plan", "internal/model", "fairlead/internal/plan", false},
		{"plan may use model", "internal/plan", "fairlead/internal/model", true},
		{"plan may not use the engine", "internal/plan", "fairlead/internal/engine", false},
		{"plan may not open files", "internal/plan", "os", false},
		{"promises may not use plan", "internal/promise", "fairlead/internal/plan", false},
		{"threats may not use plan", "internal/threat", "fairlead/internal/plan", false},
		{"a driver may use promises", "internal/driver/bridge", "fairlead/internal/promise", true},
		{"a driver may use its own tree", "internal/driver", "fairlead/internal/driver/bridge", true},
		{"a driver may not touch the kernel", "internal/driver/bridge", "fairlead/internal/kernel", false},
		{"a driver may not start processes", "internal/driver/bridge", "os/exec", false},
		{"a driver may not dial", "internal/driver/routed", "net", false},
		{"a driver may use netip", "internal/driver/routed", "net/netip", true},
		{"a publish mode may not use another module", "internal/publish/nat", "example.com/module", false},
		{"a publish mode may not use the store", "internal/publish/proxy", "fairlead/internal/store", false},
		{"a publish mode may not use a driver", "internal/publish/proxy", "fairlead/internal/driver/bridge", false},
		{"a data plane may not touch the kernel", "internal/balance/nft", "fairlead/internal/kernel/nft", false},
		{"a health checker may not touch the kernel", "internal/health", "fairlead/internal/kernel", false},
		{"kernel may use netlink", "internal/kernel/rtnl", "github.com/vishvananda/netlink/nl", true},
		{"kernel may find the cgroup hierarchy", "internal/kernel", "fairlead/internal/cgroup", true},
		{"entry points may not obtain certificates", "internal/gateway", "fairlead/internal/gateway/acme", false},
		{"what obtains certificates may use rules", "internal/gateway/acme", "fairlead/internal/gateway/rule", true},
		{"what obtains certificates may not use the gateway", "internal/gateway/acme", "fairlead/internal/gateway",
			false},
		{"middlewares may not use rules", "internal/gateway/middleware", "fairlead/internal/gateway/rule", false},
		{"health checks may not use the gateway", "internal/gateway/healthcheck", "fairlead/internal/gateway", false},
		{"the TLS options of hosts are decided without sockets", "internal/gateway/hosttls", "net", false},
		{"the condition of a server may not use its checks", "internal/gateway/condition",
			"fairlead/internal/gateway/healthcheck", false},
		{"cookies of sessions may not use middlewares", "internal/gateway/sticky", "fairlead/internal/gateway/middleware",
			false},
		{"targets of requests may not use tables of routers", "internal/gateway/target", "fairlead/internal/gateway/route",
			false},
		{"rules of routers may use nearest names", "internal/gateway/rule", "fairlead/internal/similar", true},
		{"rules of routers may not use the gateway", "internal/gateway/rule", "fairlead/internal/gateway", false},
		{"compiling expressions may not use rules", "internal/expression", "fairlead/internal/gateway/rule", false},
		{"recovery may not use the gateway", "internal/recovery", "fairlead/internal/gateway", false},
		{"waiting may not use the cluster", "internal/alarm", "fairlead/internal/cluster/kv", false},
		{"nearest names may not use rules", "internal/similar", "fairlead/internal/gateway/rule", false},
		{"finding the cgroup hierarchy may not use plan", "internal/cgroup", "fairlead/internal/plan", false},
		{"the engine may not use netlink", "internal/engine", "github.com/vishvananda/netlink", false},
		{"the laboratory may not use nftables", "internal/lab/suite", "github.com/google/nftables/expr", false},
		{"the command may not use BPF", "cmd/fairlead", "github.com/cilium/ebpf", false},
		{"a name that only begins like a library's name is a different package", "internal/engine",
			"github.com/google/nftablesque", true},
		{"kernel may not use the engine", "internal/kernel", "fairlead/internal/engine", false},
		{"a package below kernel may use another", "internal/kernel/inspect", "fairlead/internal/kernel/netns", true},
		{"a package below kernel may not use kernel", "internal/kernel/netns", "fairlead/internal/kernel", false},
		{"counters may not use netlink", "internal/kernel/counter", "github.com/vishvananda/netlink", false},
		{"a reader of links may not change them", "internal/kernel/rtnl", "fairlead/internal/kernel/rtnl/link", false},
		{"a reader of links may have handles", "internal/kernel/rtnl", "fairlead/internal/kernel/rtnl/handles", true},
		{"what inspects a host may not have rtnetlink handles", "internal/kernel/inspect",
			"fairlead/internal/kernel/rtnl/handles", false},
		{"what watches for changes may read links", "internal/kernel/watch", "fairlead/internal/kernel/rtnl", true},
		{"what watches for changes may not change links", "internal/kernel/watch",
			"fairlead/internal/kernel/rtnl/link", false},
		{"what watches for changes may not change nftables", "internal/kernel/watch",
			"fairlead/internal/kernel/nft", false},
		{"what changes links may read them", "internal/kernel/rtnl/link", "fairlead/internal/kernel/rtnl", true},
		{"what changes links may not use nft", "internal/kernel/rtnl/link", "fairlead/internal/kernel/nft", false},
		{"what changes nftables may not change links", "internal/kernel/nft", "fairlead/internal/kernel/rtnl/link",
			false},
		{"eBPF programs may not use nft", "internal/kernel/ebpf", "fairlead/internal/kernel/nft", false},
		{"the eBPF data path may not change links", "internal/kernel/ebpf/datapath",
			"fairlead/internal/kernel/rtnl/link", false},
		{"the eBPF data path may read links", "internal/kernel/ebpf/datapath", "fairlead/internal/kernel/rtnl", true},
		{"explanations may inspect", "internal/explain/facts", "fairlead/internal/kernel/inspect", true},
		{"explanations may not change links", "internal/explain/flow", "fairlead/internal/kernel/rtnl/link", false},
		{"what inspects a host may not reset connections", "internal/kernel/inspect", "fairlead/internal/kernel/rawtcp",
			false},
		{"a reader of sockets may not use what changes the kernel", "internal/kernel/sockdiag",
			"fairlead/internal/kernel/rtnl", false},
		{"questions about addresses may not use plan", "internal/kernel/localaddr", "fairlead/internal/plan", false},
		{"the proxy may ask whether an address is the host's", "internal/proxy", "fairlead/internal/kernel/localaddr",
			true},
		{"network namespaces may not use plan", "internal/kernel/netns", "fairlead/internal/plan", false},
		{"leases may not use the kernel", "internal/ipam", "fairlead/internal/kernel", false},
		{"leases may not use plan", "internal/ipam", "fairlead/internal/plan", false},
		{"the store may use plan", "internal/store", "fairlead/internal/plan", true},
		{"a checksum of JSON may not read files", "internal/jsonsum", "os", false},
		{"a file of the store may not use the model", "internal/boltfile", "fairlead/internal/model", false},
		{"the store may not use the engine", "internal/store/file", "fairlead/internal/engine", false},
		{"the table of paths may use drivers", "internal/paths", "fairlead/internal/driver/bridge", true},
		{"the table of paths may not use the engine", "internal/paths", "fairlead/internal/engine", false},
		{"unix sockets are read without the model", "internal/unixsock", "fairlead/internal/model", false},
		{"a client of engines may not find sandboxes", "internal/dockerapi", "fairlead/internal/sandbox", false},
		{"finding sandboxes may ask engines", "internal/sandbox", "fairlead/internal/dockerapi", true},
		{"finding sandboxes may use the kernel", "internal/sandbox", "fairlead/internal/kernel", true},
		{"finding sandboxes may not use the engine", "internal/sandbox", "fairlead/internal/engine", false},
		{"a DHCP client may not use the engine", "internal/dhcp", "fairlead/internal/engine", false},
		{"escaping text may not use other packages of the project", "internal/escape", "fairlead/internal/model",
			false},
		{"child may not use other packages of the project", "internal/child", "fairlead/internal/model", false},
		{"a mutex may not use who locks it", "internal/lock", "fairlead/internal/daemon", false},
		{"the keeper of the gateway may not use the engine", "internal/daemon/gateway", "fairlead/internal/engine", false},
		{"the sockets of the proxy may use the engine", "internal/daemon/sockets", "fairlead/internal/engine", true},
		{"the sockets of the proxy may not use the daemon", "internal/daemon/sockets", "fairlead/internal/daemon", false},
		{"leases may not use the engine", "internal/daemon/leases", "fairlead/internal/engine", false},
		{"resets may not use the engine", "internal/daemon/resets", "fairlead/internal/engine", false},
		{"kernel may declare what it waits for", "internal/kernel/rawtcp", "fairlead/internal/lock", true},
		{"the proxy may use plan", "internal/proxy", "fairlead/internal/plan", true},
		{"the proxy may not use the engine", "internal/proxy", "fairlead/internal/engine", false},
		{"the engine may use drivers", "internal/engine", "fairlead/internal/driver/bridge", true},
		{"the engine may not use the laboratory", "internal/engine", "fairlead/internal/lab/load", false},
		{"services may not use the applier", "internal/daemon/services", "fairlead/internal/daemon/applier", false},
		{"the applier may use services", "internal/daemon/applier", "fairlead/internal/daemon/services", true},
		{"a part of the daemon may not use the daemon", "internal/daemon/networks", "fairlead/internal/daemon", false},
		{"the command line may not use a part of the daemon", "internal/cli", "fairlead/internal/daemon/step", false},
		{"the daemon may use the engine", "internal/daemon", "fairlead/internal/engine", true},
		{"the command line may use what the daemon stores", "internal/cli", "fairlead/internal/daemon/stored", true},
		{"the command line may not use the daemon", "internal/cli", "fairlead/internal/daemon", false},
		{"explanations may not use the daemon", "internal/explain/doctor", "fairlead/internal/daemon", false},
		{"the daemon process may use the daemon", "internal/frontend/service", "fairlead/internal/daemon", true},
		{"requests may not use the daemon", "internal/api", "fairlead/internal/daemon", false},
		{"requests may not use the kernel", "internal/api", "fairlead/internal/kernel", false},
		{"a draft of the desired state may not use the daemon", "internal/daemon/spec", "fairlead/internal/daemon",
			false},
		{"a draft of the desired state may not use the kernel", "internal/daemon/spec", "fairlead/internal/kernel",
			false},
		{"the pool of a service may not use the daemon", "internal/daemon/pool", "fairlead/internal/daemon", false},
		{"the pool of a service may not use the kernel", "internal/daemon/pool", "fairlead/internal/kernel", false},
		{"deciding what to repair may not use the engine", "internal/daemon/heal", "fairlead/internal/engine", false},
		{"the daemon may not use drivers", "internal/daemon", "fairlead/internal/driver/bridge", false},
		{"the daemon may not use frontends", "internal/daemon", "fairlead/internal/frontend/admin", false},
		{"the laboratory may use the engine", "internal/lab/suite", "fairlead/internal/engine", true},
		{"the laboratory may not use the kernel", "internal/lab/suite", "fairlead/internal/kernel", false},
		{"the laboratory may not use a publish mode", "internal/lab", "fairlead/internal/publish/nat", false},
		{"the topology may make namespaces", "internal/lab/topology", "fairlead/internal/kernel/netns", true},
		{"the topology may not use netlink", "internal/lab/topology", "github.com/vishvananda/netns", false},
		{"a peer may use the rig", "internal/lab/peer", "fairlead/internal/lab/rig", true},
		{"a peer may not use the runner", "internal/lab/peer", "fairlead/internal/lab/runner", false},
		{"a rig may not use a peer", "internal/lab/rig", "fairlead/internal/lab/peer", false},
		{"the runner may use peers", "internal/lab/runner", "fairlead/internal/lab/peer", true},
		{"the runner may not use the report", "internal/lab/runner", "fairlead/internal/lab/report", false},
		{"main may use the command line", "cmd/fairlead", "fairlead/internal/cli", true},
		{"other packages may not use the command line", "internal/lab/report", "fairlead/internal/cli", false},
		{"the command line may use frontends", "internal/cli", "fairlead/internal/frontend/docker", true},
		{"trees of keys may use the gateway's values", "internal/frontend/traefik/tree", "fairlead/internal/model/gateway",
			true},
		{"trees of keys may not use the front end", "internal/frontend/traefik/tree", "fairlead/internal/frontend/traefik",
			false},
		{"hiding secrets may not open files", "internal/explain/redact", "os", false},
		{"schemas may not use the gateway's values", "internal/frontend/schema", "fairlead/internal/model/gateway", false},
		{"Traefik's flags may use trees of keys", "internal/frontend/traefik/static",
			"fairlead/internal/frontend/traefik/tree", true},
		{"Traefik's flags may not use labels", "internal/frontend/traefik/static", "fairlead/internal/frontend/traefik",
			false},
		{"the overlay check may not use the kernel", "internal/overlay", "fairlead/internal/kernel", false},
		{"the engine may not use frontends", "internal/engine", "fairlead/internal/frontend/docker", false},
		{"the command line may assemble groups of commands", "internal/cli", "fairlead/internal/cli/measure", true},
		{"a group of commands may use what all share", "internal/cli/measure", "fairlead/internal/cli/command", true},
		{"a group of commands may not use another", "internal/cli/measure", "fairlead/internal/cli/connect", false},
		{"a group of commands may not use the daemon", "internal/cli/connect", "fairlead/internal/daemon", false},
		{"snapshots may not use records", "internal/cluster/kv", "fairlead/internal/cluster/record", false},
		{"a mirror may not talk to etcd", "internal/cluster/mirror", "go.etcd.io/etcd/client/v3", false},
		{"the command line may not use drivers", "internal/cli", "fairlead/internal/driver/bridge", false},
	}
	for i, pkg := range arch.DaemonOrder[1:] {
		scenarios = append(scenarios, scenario{arch.DaemonOrder[i] + " may not use " + pkg, arch.DaemonOrder[i],
			arch.Module + pkg, false})
	}
	for _, s := range scenarios {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			broken := arch.Check(arch.Graph{arch.Module + s.pkg: {"fmt", s.imported}}, arch.Rules)
			if allowed := len(broken) == 0; allowed != s.want {
				t.Errorf("%s imports %s: allowed %v, want %v; broken: %v", s.pkg, s.imported, allowed, s.want, broken)
			}
		})
	}
	for _, rule := range arch.Rules {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool {
			return len(arch.Check(arch.Graph{arch.Module + s.pkg: {s.imported}}, []arch.Rule{rule})) > 0
		}) {
			t.Errorf("no scenario breaks the rule %q", rule.Name)
		}
	}
}

// TestSiblings checks that all drivers have the same files, and so all publish modes and all data
// planes.
func TestSiblings(t *testing.T) {
	for _, family := range []string{"driver", "publish", "balance"} {
		dir := filepath.Join("../../internal", family)
		folders := map[string][]string{}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !entry.IsDir() || slices.Contains([]string{"internal", "maglev", "wrr"}, entry.Name()) ||
				strings.HasSuffix(entry.Name(), "test") {
				continue
			}
			files, err := filepath.Glob(filepath.Join(dir, entry.Name(), "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") {
					folders[entry.Name()] = append(folders[entry.Name()], name)
				}
			}
		}
		if different := unlike(folders); different != "" {
			t.Errorf("internal/%s: siblings have different files:\n%s", family, different)
		}
	}
}

func TestSiblingsCanFail(t *testing.T) {
	folders := map[string][]string{
		"bridge": {"driver.go", "promises.go"},
		"host":   {"driver.go", "promises.go"},
	}
	if different := unlike(folders); different != "" {
		t.Errorf("equal siblings differ: %s", different)
	}
	folders["none"] = []string{"driver.go"}
	if unlike(folders) == "" {
		t.Error("a missing file is not reported")
	}
}

// unlike describes the folders whose files differ from the first one's.
func unlike(folders map[string][]string) string {
	var different strings.Builder
	var first []string
	names := []string{}
	for name := range folders {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		files := slices.Sorted(slices.Values(folders[name]))
		if first == nil {
			first = files
		}
		if diff := cmp.Diff(first, files); diff != "" {
			different.WriteString(names[0] + " (-), " + name + " (+):\n" + diff)
		}
	}
	return different.String()
}

// load reads the import graph of the module, without its tests.
func load(t *testing.T) arch.Graph {
	t.Helper()
	list := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	list.Dir = "../.."
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	graph := arch.Graph{}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return graph
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		graph[pkg.ImportPath] = pkg.Imports
	}
}
