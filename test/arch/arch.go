// Package arch defines the import rules of the design: data flows in one direction, pure packages
// stay pure, and only one package accesses the kernel. Check applies the rules to an import graph;
// the package's test reads the graph.
package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Module is the prefix of this project's packages.
const Module = "fairlead/"

// Graph maps a package's path to the paths that it imports.
type Graph map[string][]string

// Rule restricts the imports of some packages. A pattern is an exact path, or a path followed by
// "/..." for the package and everything below it. This project's packages are written without the
// module's name.
type Rule struct {
	// Name states the rule; violations quote it.
	Name string
	// Of lists the packages that the rule applies to. Except lists the packages that it does not
	// apply to, with the reason for each.
	Of     []string
	Except map[string]string
	// Ours lists which of this project's packages may be imported; nil means any.
	Ours []string
	// Deny lists what may not be imported.
	Deny []string
	// StdOnly forbids packages of other modules.
	StdOnly bool
}

// pure lists standard packages that a pure function must not use: files, processes, sockets.
var pure = []string{"io/ioutil", "log/...", "net", "net/http/...", "os/...", "syscall/...", "plugin"}

// kernelLibraries access netlink, nftables or BPF.
var kernelLibraries = []string{
	"github.com/cilium/ebpf/...",
	"github.com/florianl/...",
	"github.com/google/nftables/...",
	"github.com/jsimonetti/rtnetlink/...",
	"github.com/mdlayher/genetlink/...",
	"github.com/mdlayher/netlink/...",
	"github.com/ti-mo/...",
	"github.com/vishvananda/...",
	"golang.zx2c4.com/wireguard/...",
}

// DaemonOrder lists the daemon's packages from the bottom up: each imports only packages before it.
var DaemonOrder = []string{"internal/daemon/journal", "internal/daemon/heal", "internal/daemon/resets",
	"internal/daemon/leases", "internal/daemon/gateway", "internal/daemon/pool", "internal/daemon/upstream",
	"internal/daemon/spec", "internal/daemon/external", "internal/daemon/stored", "internal/daemon/sockets",
	"internal/daemon/state", "internal/daemon/stats", "internal/daemon/step", "internal/daemon/networks",
	"internal/daemon/watched", "internal/daemon/services", "internal/daemon/applier", "internal/daemon/endpoints",
	"internal/daemon/repair", "internal/daemon"}

// inOrder returns the rules that hold packages to an order: each imports only packages before it.
func inOrder(name string, order []string) (rules []Rule) {
	for i, pkg := range order[:len(order)-1] {
		rules = append(rules, Rule{Name: name, Of: []string{pkg}, Deny: order[i+1:]})
	}
	return rules
}

// Rules are the import rules of the design. A rule may name a package that does not exist yet.
var Rules = append(inOrder("the daemon's parts use only the parts before them", DaemonOrder), []Rule{
	{
		Name: "model contains values and imports no other package of the project",
		Of:   []string{"internal/model/..."}, Ours: []string{"internal/model/..."}, Deny: pure, StdOnly: true,
	},
	{
		Name: "plan contains values and imports only model",
		Of:   []string{"internal/plan/..."}, Ours: []string{"internal/model/...", "internal/plan/...",
			"internal/escape"}, Deny: pure, StdOnly: true,
	},
	{
		Name: "promises are data about the model",
		Of:   []string{"internal/promise/..."}, Ours: []string{"internal/model/...", "internal/promise/..."},
		Deny: pure, StdOnly: true,
	},
	{
		Name: "threats are data about drivers and publish modes",
		Of:   []string{"internal/threat/..."},
		Ours: []string{"internal/model/...", "internal/threat/...", "internal/paths"}, Deny: pure,
		StdOnly: true,
	},
	{
		Name: "a driver is a pure function from model and facts to plan",
		Of:   []string{"internal/driver/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/promise/...", "internal/driver/...",
			"internal/escape"}, Deny: pure, StdOnly: true,
	},
	{
		Name: "a publish mode is a pure function from model and facts to plan",
		Of:   []string{"internal/publish/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/promise/...", "internal/publish/..."},
		Deny: pure, StdOnly: true,
	},
	{
		Name: "a data plane is a pure function from model and facts to plan",
		Of:   []string{"internal/balance/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/promise/...", "internal/balance/..."},
		Deny: pure, StdOnly: true,
	},
	{
		Name: "only kernel uses netlink, nftables and BPF",
		Of:   []string{"..."}, Except: map[string]string{"internal/kernel/...": "it accesses the kernel",
			"test/unwrap": "it terminates a tunnel, for tests"}, Deny: kernelLibraries,
	},
	{
		Name: "kernel applies plans and imports no higher layer",
		Of:   []string{"internal/kernel/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/cgroup/...", "internal/kernel/...",
			"internal/escape", "internal/lock"},
	},
	{
		Name:   "no package below kernel imports it",
		Of:     []string{"internal/kernel/..."},
		Except: map[string]string{"internal/kernel": "the package itself"},
		Deny:   []string{"internal/kernel"},
	},
	{
		Name: "network namespaces and questions about the host's addresses need no other package of the project",
		Of:   []string{"internal/kernel/netns/...", "internal/kernel/localaddr/..."}, Ours: []string{},
	},
	{
		Name: "a reader of sockets imports nothing that changes the kernel",
		Of:   []string{"internal/kernel/sockdiag/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/cgroup/...", "internal/kernel/netns",
			"internal/kernel/nlutil"},
	},
	{
		Name: "counters are values",
		Of:   []string{"internal/kernel/counter/..."}, Ours: []string{"internal/model/..."}, Deny: pure, StdOnly: true,
	},
	{
		Name: "a reader of links imports nothing that changes the kernel",
		Of:   []string{"internal/kernel/rtnl"},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/kernel/netns", "internal/kernel/nlutil",
			"internal/kernel/rtnl/handles"},
	},
	{
		Name: "only what changes links, and their reader, have rtnetlink handles",
		Of:   []string{"..."},
		Except: map[string]string{"internal/kernel/rtnl/...": "its reader uses them and does not give them away",
			"internal/kernel": "it hands them to the reader and to what changes links"},
		Deny: []string{"internal/kernel/rtnl/handles"},
	},
	{
		Name: "what watches for changes imports nothing that changes the kernel",
		Of:   []string{"internal/kernel/watch/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/kernel/netns", "internal/kernel/nlutil",
			"internal/kernel/rtnl"},
	},
	{
		Name: "what changes links imports no other part of the kernel's packages",
		Of:   []string{"internal/kernel/rtnl/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/kernel/netns", "internal/kernel/nlutil",
			"internal/kernel/rtnl/...", "internal/escape"},
	},
	{
		Name: "what changes nftables changes nothing else",
		Of:   []string{"internal/kernel/nft", "internal/kernel/iptables"},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/kernel/conntrack",
			"internal/kernel/counter",
			"internal/kernel/netns", "internal/kernel/nft", "internal/kernel/nlutil", "internal/kernel/rtnl",
			"internal/kernel/rules"},
	},
	{
		Name: "programs, maps and links of eBPF know nothing of the rest of the kernel's packages",
		Of:   []string{"internal/kernel/ebpf", "internal/kernel/bpf"},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/cgroup/...", "internal/kernel/bpf",
			"internal/kernel/nlutil"},
	},
	{
		Name: "the eBPF data path changes neither links nor nftables",
		Of:   []string{"internal/kernel/ebpf/datapath", "internal/kernel/ipvs"},
		Deny: []string{"internal/kernel/rtnl/link/...", "internal/kernel/rtnl/tunnel/...",
			"internal/kernel/rtnl/device/...",
			"internal/kernel/nft/...", "internal/kernel/iptables/..."},
	},
	{
		Name: "hiding secrets reads no files",
		Of:   []string{"internal/explain/redact/..."}, Ours: []string{"internal/model/..."}, Deny: pure, StdOnly: true,
	},
	{
		Name: "explanations and metrics do not change the kernel",
		Of:   []string{"internal/explain/...", "internal/frontend/metrics/..."},
		Deny: []string{"internal/kernel/conntrack", "internal/kernel/ipvs", "internal/kernel/iptables",
			"internal/kernel/rawtcp",
			"internal/kernel/rtnl/link", "internal/kernel/rtnl/tunnel", "internal/kernel/rtnl/device"},
	},
	{
		Name: "what inspects a host cannot change its links and connections",
		Of:   []string{"internal/kernel/inspect"},
		Deny: []string{"internal/kernel/conntrack", "internal/kernel/iptables", "internal/kernel/rawtcp",
			"internal/kernel/rtnl/link", "internal/kernel/rtnl/tunnel", "internal/kernel/rtnl/device"},
	},
	{
		Name: "leases import only model",
		Of:   []string{"internal/ipam/..."}, Ours: []string{"internal/model/...", "internal/ipam/..."},
	},
	{
		Name: "a store keeps values: desired and applied state, leases, and the plan's settings to restore",
		Of:   []string{"internal/store/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/ipam/...", "internal/store/...",
			"internal/boltfile", "internal/escape", "internal/alarm"},
	},
	{
		Name: "a file that knows its damages does not know what its values mean",
		Of:   []string{"internal/boltfile"}, Ours: []string{},
	},
	{
		Name: "a checksum of JSON is a pure function",
		Of:   []string{"internal/jsonsum"}, Ours: []string{}, Deny: pure, StdOnly: true,
	},
	{
		Name: "the table of paths is data: what drivers and publish modes declare",
		Of:   []string{"internal/paths/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/promise/...", "internal/driver/...",
			"internal/publish/...", "internal/balance/...", "internal/paths/..."}, Deny: pure,
	},
	{
		Name: "a health checker connects to servers as any client does, and imports only model",
		Of:   []string{"internal/health/..."},
		Ours: []string{"internal/model/...", "internal/child/...", "internal/cgroup/...", "internal/alarm",
			"internal/health/..."},
	},
	{
		Name: "descriptors and peers of unix sockets are read without another package of the project",
		Of:   []string{"internal/unixsock"}, Ours: []string{},
	},
	{
		Name: "finding the cgroup hierarchy and reading inotify need no other package of the project",
		Of:   []string{"internal/cgroup/...", "internal/inotify/..."}, Ours: []string{},
	},
	{
		Name: "a client of container engines does not know what an answer means",
		Of:   []string{"internal/dockerapi"}, Ours: []string{"internal/model/...", "internal/lock"},
	},
	{
		Name: "finding sandboxes needs only kernel, inotify and the container engines",
		Of:   []string{"internal/sandbox/..."},
		Ours: []string{"internal/model/...", "internal/kernel/...", "internal/inotify/...", "internal/dockerapi",
			"internal/sandbox/...",
			"internal/recovery", "internal/alarm"},
	},
	{
		Name: "a DHCP client needs only kernel, and alarm for the times of leases",
		Of:   []string{"internal/dhcp/..."}, Ours: []string{"internal/model/...", "internal/kernel/...",
			"internal/dhcp/...", "internal/alarm"},
	},
	{
		Name: "escaping text needs no other package of the project",
		Of:   []string{"internal/escape/..."}, Ours: []string{}, Deny: pure, StdOnly: true,
	},
	{
		Name: "regular expressions are compiled within limits, without another package of the project",
		Of:   []string{"internal/expression/..."}, Ours: []string{}, Deny: pure, StdOnly: true,
	},
	{
		Name: "whatever reads objects can recover from a panic of one, without another package of the project",
		Of:   []string{"internal/recovery/..."}, Ours: []string{}, StdOnly: true,
	},
	{
		Name: "waiting needs no other package of the project",
		Of:   []string{"internal/alarm/..."}, Ours: []string{},
	},
	{
		Name: "comparing names needs no other package of the project",
		Of:   []string{"internal/similar/..."}, Ours: []string{}, Deny: pure, StdOnly: true,
	},
	{
		Name: "middlewares get the rest of the gateway as functions",
		Of:   []string{"internal/gateway/middleware/..."},
		Ours: []string{"internal/model/gateway", "internal/gateway/middleware/...", "internal/expression"},
	},
	{
		Name: "health checks of HTTP servers get the servers and the transport from the gateway",
		Of:   []string{"internal/gateway/healthcheck/..."},
		Ours: []string{"internal/model/gateway", "internal/gateway/goroutine"},
	},
	{
		Name: "the TLS options of hosts are decided from rules of routers and configurations of crypto/tls",
		Of:   []string{"internal/gateway/hosttls/..."}, Deny: pure, StdOnly: true,
		Ours: []string{"internal/model/gateway", "internal/gateway/rule", "internal/gateway/tlsconfig"},
	},
	{
		Name: "the condition of a server is a value that checks and load balancers share",
		Of:   []string{"internal/gateway/condition/..."}, Deny: pure, StdOnly: true,
		Ours: []string{"internal/model/gateway"},
	},
	{
		Name: "cookies of sessions are made from values",
		Of:   []string{"internal/gateway/sticky/..."}, Ours: []string{"internal/model/gateway"}, StdOnly: true,
	},
	{
		Name: "targets of requests are cleaned as rules read them, without the gateway",
		Of:   []string{"internal/gateway/target/..."}, StdOnly: true,
		Ours: []string{"internal/model/gateway", "internal/gateway/rule"},
	},
	{
		Name:   "entry points get certificates as values, and obtain none themselves",
		Of:     []string{"internal/gateway/..."},
		Except: map[string]string{"internal/gateway/acme/...": "it obtains them, where the gateway is controlled"},
		Deny: []string{"internal/gateway/acme/...", "github.com/caddyserver/certmagic/...",
			"github.com/mholt/acmez/...", "github.com/go-acme/..."},
	},
	{
		Name: "what obtains certificates gets the rest of the gateway as values",
		Of:   []string{"internal/gateway/acme/..."},
		Ours: []string{"internal/jsonsum", "internal/model/gateway", "internal/gateway/acme/...",
			"internal/gateway/rule", "internal/recovery", "internal/alarm"},
	},
	{
		Name: "rules of routers are matched without the gateway",
		Of:   []string{"internal/gateway/rule/..."}, Ours: []string{"internal/similar", "internal/expression"},
		Deny:    []string{"os/..."},
		StdOnly: true,
	},
	{
		Name: "child does not import what it starts",
		Of:   []string{"internal/child/..."}, Ours: []string{},
	},
	{
		Name: "the mutex whose holder does not wait knows nothing of those who use it",
		Of:   []string{"internal/lock/..."}, Ours: []string{"internal/lock/..."}, Deny: pure, StdOnly: true,
	},
	{
		Name: "the gateway gets what the daemon wants as a value, without the daemon, the engine or the kernel",
		Of:   []string{"internal/daemon/gateway/..."},
		Ours: []string{"internal/model/...", "internal/api/...", "internal/lock", "internal/alarm",
			"internal/daemon/gateway/..."},
	},
	{
		Name: "the proxy is a separate process and needs only plan's listeners",
		Of:   []string{"internal/proxy/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/child/...", "internal/kernel/localaddr",
			"internal/lock", "internal/unixsock", "internal/proxy/..."},
	},
	{
		Name: "the overlay check sends packets as any program does, and imports only model and plan",
		Of:   []string{"internal/overlay/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/overlay/..."},
	},
	{
		Name: "the engine imports no higher layer",
		Of:   []string{"internal/engine/..."},
		Deny: []string{"internal/cli/...", "internal/explain/...", "internal/frontend/...", "internal/gateway/...",
			"internal/lab/..."},
	},
	{
		Name: "the daemon imports no higher layer",
		Of:   []string{"internal/daemon/..."},
		Deny: []string{"internal/driver/...", "internal/publish/...", "internal/lab/...", "internal/gateway/..."},
	},
	{
		Name: "a desired state is computed from values, without the daemon, the engine or the kernel",
		Of:   []string{"internal/daemon/spec/..."}, Deny: []string{"os/..."},
		Ours: []string{"internal/model/...", "internal/api/...", "internal/sandbox", "internal/daemon/spec/..."},
	},
	{
		Name: "the real servers of a service are computed from values, without the daemon, the engine or the kernel",
		Of:   []string{"internal/daemon/pool/..."}, Deny: []string{"os/..."},
		Ours: []string{"internal/model/...", "internal/api/...", "internal/health", "internal/sandbox",
			"internal/daemon/pool/..."},
	},
	{
		Name: "what to repair is decided from plans, without the daemon, the engine or the kernel",
		Of:   []string{"internal/daemon/heal/..."}, Deny: pure,
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/api/...", "internal/daemon/heal/..."},
	},
	{
		Name: "the sockets of the proxy change without the daemon and the kernel",
		Of:   []string{"internal/daemon/sockets/..."},
		Ours: []string{"internal/model/...", "internal/plan/...", "internal/engine", "internal/proxy", "internal/lock",
			"internal/daemon/heal", "internal/alarm", "internal/daemon/sockets/..."},
	},
	{
		Name: "clients are reset beside the daemon by functions that it passes on",
		Of:   []string{"internal/daemon/resets/..."}, Ours: []string{"internal/lock", "internal/daemon/resets/..."},
		Deny: pure,
	},
	{
		Name: "leases of DHCP servers are held without the daemon, the engine and the kernel",
		Of:   []string{"internal/daemon/leases/..."},
		Ours: []string{"internal/model/...", "internal/dhcp", "internal/lock", "internal/alarm",
			"internal/daemon/leases/..."},
	},
	{
		Name: "requests, results, views and events are values that a client of the daemon can import without the daemon",
		Of:   []string{"internal/api/..."}, Ours: []string{"internal/model/...", "internal/health/...",
			"internal/kernel/counter", "internal/api/..."},
	},
	{
		Name:   "clients of the daemon import its values, and not the daemon",
		Of:     []string{"internal/cli/...", "internal/explain/...", "internal/frontend/..."},
		Except: map[string]string{"internal/frontend/service": "it is the process that runs the daemon"},
		Deny:   DaemonOrder[slices.Index(DaemonOrder, "internal/daemon/state"):],
	},
	{
		Name:   "the laboratory builds its paths with the engine, so that it measures what users deploy",
		Of:     []string{"internal/lab/..."},
		Except: map[string]string{"internal/lab/topology/...": "makes temporary namespaces and the wire, which represent hosts and cables and are not paths"},
		Deny:   []string{"internal/driver/...", "internal/kernel/...", "internal/publish/..."},
	},
	{
		Name: "a maker of paths uses neither the session that measures them nor the report",
		Of: []string{"internal/lab/rig/...", "internal/lab/peer/...", "internal/lab/tool/...",
			"internal/lab/program/..."},
		Deny: []string{"internal/lab/runner/...", "internal/lab/report/...", "internal/lab/expr/..."},
	},
	{
		Name: "a rig asks its maker, and uses no peer",
		Of:   []string{"internal/lab/rig/..."}, Deny: []string{"internal/lab/peer/..."},
	},
	{
		Name: "the runner measures and does not present",
		Of:   []string{"internal/lab/runner/..."}, Deny: []string{"internal/lab/report/...", "internal/lab/expr/..."},
	},
	{
		Name: "only the command line and the process import frontends, and only main imports the command line",
		Of:   []string{"..."},
		Except: map[string]string{"cmd/...": "main", "internal/cli/...": "it parses commands and calls frontends",
			"internal/frontend/...": "the package itself",
			"internal/process/...":  "it serves the frontends' sockets",
			"test/dashboard/...":    "it looks at the dashboard",
			"test/daemons/...":      "it runs complete daemons for tests"},
		Deny: []string{"internal/cli/...", "internal/frontend/..."},
	},
	{
		Name: "schemas are values, and know no field of any file",
		Of:   []string{"internal/frontend/schema/..."}, Ours: []string{}, Deny: pure, StdOnly: true,
	},
	{
		Name: "trees of keys know only the gateway's values, and open no files",
		Of:   []string{"internal/frontend/traefik/tree/..."},
		Ours: []string{"internal/model/gateway", "internal/similar"}, Deny: pure,
	},
	{
		Name: "the settings with which Traefik starts are read from trees, and know neither labels nor files of routers",
		Of:   []string{"internal/frontend/traefik/static/..."},
		Ours: []string{"internal/frontend/traefik/tree", "internal/model/gateway"},
		Deny: []string{"net/http/...", "os/exec"},
	},
	{
		Name:   "commands of one group use what all commands share, and no other group",
		Of:     []string{"internal/cli/..."},
		Except: map[string]string{"internal/cli": "it assembles the groups"},
		Deny: []string{"internal/cli", "internal/cli/balance/...", "internal/cli/connect/...",
			"internal/cli/declare/...",
			"internal/cli/explain/...", "internal/cli/measure/..."},
	},
	{
		Name: "transactions and snapshots of a cluster's store are values",
		Of:   []string{"internal/cluster/kv"}, Ours: []string{}, Deny: pure, StdOnly: true,
	},
	{
		Name: "only one package of a cluster talks to etcd",
		Of:   []string{"..."}, Except: map[string]string{"internal/cluster/etcd": "it is that package",
			"test/etcd": "it runs etcd for tests"}, Deny: []string{"go.etcd.io/etcd/..."},
	},
	{
		Name: "main and the command line contain no kernel code",
		Of:   []string{"cmd/...", "internal/cli/..."},
		Deny: []string{"internal/driver/...", "internal/publish/...", "internal/balance/..."},
	},
}...)

// Check returns the imports that break the rules, in a fixed order.
func Check(graph Graph, rules []Rule) []string {
	var broken []string
	for _, rule := range rules {
		for _, path := range slices.Sorted(maps.Keys(graph)) {
			pkg, ours := strings.CutPrefix(path, Module)
			if !ours || !matchAny(rule.Of, pkg) || matchAny(slices.Collect(maps.Keys(rule.Except)), pkg) {
				continue
			}
			for _, imported := range graph[path] {
				if !rule.allows(imported) {
					broken = append(broken, fmt.Sprintf("%s imports %s: %s", pkg, imported, rule.Name))
				}
			}
		}
	}
	return broken
}

func (r Rule) allows(imported string) bool {
	own, ours := strings.CutPrefix(imported, Module)
	switch {
	case matchAny(r.Deny, own):
		return false
	case ours:
		return r.Ours == nil || matchAny(r.Ours, own)
	default:
		host, _, _ := strings.Cut(imported, "/")
		return !r.StdOnly || !strings.Contains(host, ".")
	}
}

func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tree, isTree := strings.CutSuffix(pattern, "...")
		if !isTree {
			return pattern == path
		}
		return strings.HasPrefix(path+"/", tree)
	})
}
