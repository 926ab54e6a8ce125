package topology

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// LinkBytes returns the bytes that a link of the server host has received
// and sent.
func (w *World) LinkBytes(link string) (uint64, error) { return w.server.LinkBytes("", link) }

// SandboxBytes returns the same of a link in the sandbox of that name, which
// must exist.
func (w *World) SandboxBytes(sandbox, link string) (uint64, error) {
	return w.server.LinkBytes(w.sandboxes[sandbox].Path(), link)
}

// Tracked returns how many flows the server host's conntrack remembers: none
// unless something asked it to, because each namespace has a table of its own.
func (w *World) Tracked() (int, error) {
	text, err := w.server.ReadSysctl(plan.Sysctl{Name: "net.netfilter.nf_conntrack_count"})
	if errors.Is(err, kernel.ErrNoSetting) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count flows: %w", err)
	}
	return strconv.Atoi(text)
}

// ForgetTracked has the server host's conntrack forget every flow.
func (w *World) ForgetTracked() error {
	if n, err := w.Tracked(); err != nil || n == 0 {
		return err
	}
	_, err := w.server.FlushFlows(func(kernel.Flow) bool { return true })
	return err
}

// Holds reports whether a process of the server host holds the port.
func (w *World) Holds(proto model.Proto, port uint16) (bool, error) {
	owner, err := w.server.PortOwner(proto, netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	return owner.PID != 0, err
}

// EBPFBytes returns the bytes that the server host's eBPF programs have led
// past its links, whose counters do not see them.
func (w *World) EBPFBytes() (uint64, error) {
	_, bytes, err := w.usesEBPF.TranslatedTraffic()
	if err != nil {
		return 0, err
	}
	services, err := w.usesEBPF.BalancerCounts()
	for _, reals := range services {
		for _, n := range reals {
			bytes += n.Bytes[ebpf.Inward] + n.Bytes[ebpf.Outward]
		}
	}
	return bytes, err
}

// EBPFFlows returns how many flows the server host's eBPF programs remember.
func (w *World) EBPFFlows() (int, error) {
	n := 0
	err := w.usesEBPF.Flows(func(ebpf.Flow) { n++ })
	return n, err
}

// ForgetEBPFFlows has them forget every flow.
func (w *World) ForgetEBPFFlows() error { return w.usesEBPF.ForgetFlows() }
