package runner

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/plan"
)

// settings are the sysctls that affect the figures. The report contains the host's
// values; in a new network namespace those under net have the kernel's defaults.
var settings = []string{
	"net.core.rmem_max", "net.core.wmem_max", "net.core.netdev_budget", "net.core.busy_poll",
	"net.ipv4.tcp_congestion_control", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_tw_reuse",
	"net.ipv4.ip_local_port_range", "net.netfilter.nf_conntrack_max", "net.bridge.bridge-nf-call-iptables",
	"kernel.sched_rt_runtime_us",
}

// features are the kernel features that the paths need.
var features = []plan.Feature{
	plan.FeatureVeth, plan.FeatureBridge, plan.FeatureBridgeFilter, plan.FeatureNAT, plan.FeatureIPv6,
	plan.FeatureEBPF, plan.FeatureCgroupHooks, plan.FeatureMacvlan, plan.FeatureIPvlan, plan.FeatureVXLAN,
}

// watchLink is how long the traffic of a link is measured before a session.
const watchLink = time.Second

// Describe describes this machine and its link for a session with another machine. It
// measures the link's traffic for a moment.
func Describe(link string, opt Options) (result.Machine, error) {
	at, err := topology.DescribeLink(link, watchLink)
	return result.Machine{Host: hostFacts(opt), Link: at}, err
}

// hostFacts describes this machine, as far as it matters for the figures.
func hostFacts(opt Options) result.Host {
	h := result.Host{
		Kernel: opt.Facts.Kernel, CPUs: runtime.NumCPU(), Fairlead: opt.Version,
		CPUModel: field("/proc/cpuinfo", "model name"), Features: map[string]bool{}, Settings: map[string]string{},
	}
	h.Memory, _ = memory("MemTotal")
	for _, f := range features {
		if !slices.Contains(opt.Facts.Untested, f) {
			h.Features[string(f)] = opt.Facts.Has(f)
		}
	}
	for _, name := range settings {
		if b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/")); err == nil {
			h.Settings[name] = strings.Join(strings.Fields(string(b)), " ")
		}
	}
	for _, p := range []string{
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource",
	} {
		if b, err := os.ReadFile(p); err == nil {
			h.Settings[p[strings.LastIndexByte(p, '/')+1:]] = strings.TrimSpace(string(b))
		}
	}
	h.Tools = versions(opt)
	return h
}

// versions returns the versions of the external programs that were used; it omits
// programs that print none.
func versions(opt Options) map[string]string {
	names := slices.Clone(opt.Tools)
	for _, path := range opt.Suite.Paths {
		p, _ := suite.FindPath(path)
		if p.Peer.ByHand {
			continue
		}
		for _, needed := range peer.Maker(p).Needs().Programs {
			names = append(names, needed.Name)
		}
	}
	all := map[string]string{}
	for _, name := range names {
		path, err := program.Find(name, opt.Docker)
		if err != nil || all[name] != "" {
			continue
		}
		out, err := exec.Command(path, "--version").CombinedOutput()
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		// wrk prints its version, and exits with 1.
		if err == nil && line != "" || strings.HasPrefix(line, name+" ") {
			all[name] = line
		}
	}
	return all
}

// field returns the value of the first "key : value" line of a file.
func field(path, key string) string {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
