package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Probe tests in a temporary network namespace which features this kernel has. It
// changes nothing on the host. It needs root, and returns an error if it cannot
// create the namespace. If features are given, it tests only these and assumes
// that the kernel has the others: loading eBPF programs takes longer than all
// other tests. It tests plan.FeatureServices only if that is given.
func Probe(only ...plan.Feature) (plan.Facts, error) {
	facts := plan.Facts{Kernel: release()}
	if os.Geteuid() != 0 {
		return facts,
			errors.New("probe kernel: root is needed to create network namespaces: run as root, e.g. with sudo")
	}
	ns, err := netns.New()
	if err != nil {
		return facts, fmt.Errorf("probe kernel: %w", err)
	}
	defer ns.Close()
	h, err := Open(ns.Path(), Options{})
	if err != nil {
		return facts, fmt.Errorf("probe kernel: %w", err)
	}
	defer h.Close()
	if err := mayOpen(probeFiles); err != nil {
		return facts, fmt.Errorf("probe kernel: %w: raise the limit of open files: ulimit -n 65536, or LimitNOFILE=65536 in "+
			"the unit", err)
	}
	for feature := range probes {
		if !tests(only, feature) {
			facts.Untested = append(facts.Untested, feature)
		}
	}
	facts.Missing, err = h.missing(only)
	return facts, err
}

// tests reports whether Probe tests a feature if it is given these.
func tests(only []plan.Feature, feature plan.Feature) bool {
	return slices.Contains(only, feature) || len(only) == 0 && feature != plan.FeatureServices
}

// probeFiles is how many files the probes may have open at once. Without them, some kernels seem to lack features.
const probeFiles = 100

// mayOpen returns an error if the process cannot open that many files.
func mayOpen(n int) error {
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	for range n {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		open = append(open, fd)
	}
	return nil
}

// probes has the test for each feature.
var probes = map[plan.Feature]func(*Host) error{
	plan.FeatureVeth:         probeVeth,
	plan.FeatureBridge:       probeBridge,
	plan.FeatureBridgeFilter: probeBridgeFilter,
	plan.FeatureNAT:          probeNAT,
	plan.FeatureNFTServices:  probeNFTServices,
	plan.FeatureIPv6:         probeIPv6,
	plan.FeatureEBPF:         probeEBPF,
	plan.FeatureVXLAN:        probeVXLAN,
	plan.FeatureWireGuard:    probeWireGuard,
	plan.FeatureCgroupHooks:  probeCgroupHooks,
	plan.FeatureServices:     probeServices,
	plan.FeatureMacvlan:      probeMacvlan,
	plan.FeatureIPvlan:       probeIPvlan,
	plan.FeatureVLAN:         probeVLAN,
	plan.FeatureIPVS:         probeIPVS,
	plan.FeatureFlowtable:    probeFlowtable,
}

// probedByNFT are the features whose probes use the nftables connection. It
// supports one request at a time: a concurrent one would read the wrong answer.
var probedByNFT = []plan.Feature{plan.FeatureNAT, plan.FeatureNFTServices, plan.FeatureIPVS, plan.FeatureFlowtable}

// missing returns the features that the kernel lacks, with the reason for each, or an
// error if this process cannot find out. It runs the probes concurrently where
// possible, because they mostly wait for the kernel.
func (h *Host) missing(only []plan.Feature) (missing map[plan.Feature]string, failed error) {
	var mu, nft sync.Mutex
	var wg sync.WaitGroup
	missing = map[plan.Feature]string{}
	for feature, try := range probes {
		if !tests(only, feature) {
			continue
		}
		wg.Go(func() {
			if slices.Contains(probedByNFT, feature) {
				nft.Lock()
				defer nft.Unlock()
			}
			if err := try(h); err != nil {
				mu.Lock()
				defer mu.Unlock()
				missing[feature] = err.Error()
				if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
					failed = fmt.Errorf("probe kernel: %w: raise the limit of open files: ulimit -n 65536, or LimitNOFILE=65536 in the unit", err)
				}
			}
		})
	}
	wg.Wait()
	return missing, failed
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func probeVeth(h *Host) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe0"
	return h.tryLink("veth", &netlink.Veth{LinkAttrs: attrs, PeerName: "probe1"})
}

func probeBridge(h *Host) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probebr0"
	return h.tryLink("bridge", &netlink.Bridge{LinkAttrs: attrs})
}

func probeVXLAN(h *Host) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probevx0"
	return h.tryLink("vxlan", &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 4789})
}

func probeWireGuard(h *Host) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probewg0"
	return h.tryLink("wireguard", &netlink.Wireguard{LinkAttrs: attrs})
}

func (h *Host) tryLink(kind string, l netlink.Link) error {
	handle, err := h.links.At("")
	if err != nil {
		return err
	}
	if err := handle.LinkAdd(l); err != nil {
		return fmt.Errorf("the kernel cannot create a %s link (%w): load or build in the module %s", kind, err, kind)
	}
	return handle.LinkDel(l)
}

func probeBridgeFilter(h *Host) error {
	_, err := h.rtnl.ReadSysctl(plan.Sysctl{Name: plan.SysctlBridgeFilter4})
	if errors.Is(err, rtnl.ErrNoSetting) {
		return errors.New("the module br_netfilter is not loaded: modprobe br_netfilter")
	}
	return err
}

// probeNAT creates the whole table fairlead, which uses every nftables expression
// of the publish mode nat.
func probeNAT(h *Host) error {
	if err := h.nft.Transact([]plan.Op{{Object: plan.Table{}}}); err != nil {
		return fmt.Errorf("the kernel does not support NAT with nftables (%w): load nft_chain_nat, nft_fib_inet, nft_masq and nf_conntrack", err)
	}
	return h.nft.Try()
}

// probeFlowtable creates the table with the flowtable.
func probeFlowtable(h *Host) error {
	if err := h.nft.SetFlowtable([]string{"lo"}); err != nil {
		return fmt.Errorf("the kernel does not support flowtables in nftables (%w): run %s with nft_flow_offload and nf_flow_table_inet",
			err, plan.FeatureFlowtable.Release())
	}
	return h.nft.DelFlowtable(plan.Flowtable{})
}

// probeNFTServices creates the table of services with one service for each kind
// of rule.
func probeNFTServices(h *Host) error {
	at := netip.MustParseAddrPort("192.0.2.1:1")
	all := []plan.Op{{Object: plan.ServiceTable{}}}
	for _, s := range []model.Scheduler{model.MaglevHashing, model.RoundRobin} {
		all = append(all, plan.Op{Object: plan.NFTService{Balanced: plan.Balanced{Service: string(s), Proto: model.TCP,
			Scheduler:   s,
			Persistence: time.Second, Backends: []plan.Backend{{At: at, Weight: 1}}, Ring: []uint16{0}}}})
	}
	if err := h.nft.Transact(all); err != nil {
		return fmt.Errorf("the kernel does not support services in nftables (%w): run %s with nft_reject_inet, nft_hash and nft_numgen",
			err, plan.FeatureNFTServices.Release())
	}
	return nil
}

func probeIPv6(h *Host) error {
	value, err := h.rtnl.ReadSysctl(plan.Sysctl{Name: "net.ipv6.conf.all.disable_ipv6"})
	if err != nil || strings.TrimSpace(value) != "0" {
		return errors.New("IPv6 is disabled: sysctl net.ipv6.conf.all.disable_ipv6=0, and boot without ipv6.disable=1")
	}
	return nil
}

// probeEBPF attaches a program for links to the loopback link of the probe's
// namespace.
func probeEBPF(h *Host) error {
	if err := h.ns.Do(ebpf.TryLinks); err != nil {
		return fmt.Errorf("%w: run %s, built with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF", err,
			plan.FeatureEBPF.Release())
	}
	return nil
}

// tryServices asks the kernel once, because the answer does not change.
var tryServices = sync.OnceValue(ebpf.TryServices)

func probeServices(h *Host) error {
	if err := h.ns.Do(tryServices); err != nil {
		return fmt.Errorf("%w: run %s, built with CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF", err,
			plan.FeatureServices.Release())
	}
	return nil
}

func probeCgroupHooks(*Host) error {
	if _, err := cgroup.Root(); err != nil {
		return err
	}
	if err := ebpf.TryCgroups(); err != nil {
		return fmt.Errorf("%w: run %s, built with CONFIG_CGROUP_BPF and CONFIG_BPF_EVENTS", err,
			plan.FeatureCgroupHooks.Release())
	}
	return nil
}
