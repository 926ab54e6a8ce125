package datapath

import (
	"errors"
	"fmt"
	"path/filepath"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// BPFDir is the directory below which the eBPF programs and maps of all hosts are
// pinned. It is in a bpffs, which systemd mounts.
const BPFDir = "/sys/fs/bpf/" + plan.Mark

// Datapath returns the eBPF data path. It loads the data path or adopts the one
// that an earlier process has left.
func (h *Handle) Datapath() (*ebpf.Datapath, error) {
	if h.ebpfState != nil {
		return h.ebpfState, nil
	}
	err := loading(h, func(opt ebpf.Options) (err error) {
		if h.ebpfState, err = h.wake(opt); err == nil && h.ebpfState == nil {
			h.ebpfState, err = load(h, ebpf.Load, opt)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return h.ebpfState, h.describeHost(h.ebpfState)
}

// loading calls f with the options of a data path for the host. No other process loads one meanwhile.
func loading(h *Handle, f func(ebpf.Options) error) error {
	opt, err := loadOptions(h)
	if err != nil {
		return err
	}
	unlock, err := h.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return f(opt)
}

// loadOptions returns the options of a data path for the host. It deletes the pins of hosts that are gone.
func loadOptions(h *Handle) (opt ebpf.Options, err error) {
	opt = ebpf.Options{LooseSources: h.opt.LooseSources}
	if opt.Cookie, err = h.ns.Cookie(); err != nil || h.opt.Pins == "" {
		return opt, err
	}
	opt.Pins = h.pins(opt.Cookie)
	return opt, ebpf.Sweep(h.opt.Pins)
}

// load loads a data path on a thread in the host's namespace.
func load(h *Handle, with func(ebpf.Options) (*ebpf.Datapath, error), opt ebpf.Options) (p *ebpf.Datapath, err error) {
	err = h.ns.Do(func() (err error) {
		p, err = with(opt)
		return err
	})
	return p, err
}

// lock keeps other Fairlead processes from loading a data path for the same host,
// so that all of them use the same maps. The lock is on the namespace's file.
func (h *Handle) lock() (unlock func() error, err error) {
	ns, err := netns.Open(h.ns.Path())
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(ns.File().Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the network namespace: %w", err), ns.Close())
	}
	return ns.Close, nil
}

// pins returns the directory of the host's pins. It is named by the namespace's
// cookie, which like the pins stays valid until the next boot.
func (h *Handle) pins(cookie uint64) string {
	return filepath.Join(h.opt.Pins, fmt.Sprintf("%x", cookie))
}

// datapathIfAny returns the data path if one is loaded or pinned, and nil if there
// is none.
func (h *Handle) datapathIfAny() (*ebpf.Datapath, error) {
	if h.ebpfState != nil || h.opt.Pins == "" {
		return h.ebpfState, nil
	}
	cookie, err := h.ns.Cookie()
	if err != nil {
		return nil, err
	}
	if err := unix.Access(h.pins(cookie), unix.F_OK); err != nil {
		return nil, nil
	}
	return h.Datapath()
}

// unloadIdle unloads the data path if nothing uses it. With Options.Rest it keeps
// the programs loaded for later use.
func (h *Handle) unloadIdle() error {
	if h.ebpfState == nil || !h.ebpfState.Idle() {
		return nil
	}
	p := h.ebpfState
	h.ebpfState = nil
	if !h.opt.Rest {
		return p.Remove()
	}
	h.resting = p
	return p.Rest()
}

// wake returns the resting data path, pinned again. It returns nil if there is
// none, or if another Fairlead process has loaded a data path for the host in the
// meantime.
func (h *Handle) wake(opt ebpf.Options) (*ebpf.Datapath, error) {
	p := h.resting
	h.resting = nil
	if p == nil {
		return nil, nil
	}
	if opt.Pins != "" && unix.Access(opt.Pins, unix.F_OK) == nil {
		return nil, p.Close()
	}
	return p, p.Repin()
}

// onLink calls fn with a link of the host, on a thread in the host's namespace.
func (h *Handle) onLink(name string, fn func(netlink.Link) error) error {
	l, err := h.rtnl.LinkByName("", name)
	if err != nil {
		return err
	}
	return h.ns.Do(func() error { return fn(l) })
}

// linksOf returns the indices of the links that the program is attached to.
func (h *Handle) linksOf(p *ebpf.Datapath, program string) (found map[int]bool, err error) {
	err = h.ns.Do(func() error {
		found, err = p.LinksOf(program)
		return err
	})
	return found, err
}

// Flows calls fn for each flow in the eBPF flow table. Without a data path it calls
// nothing. It is safe for concurrent use.
func (h *Handle) Flows(fn func(ebpf.Flow)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return err
	}
	return p.Flows().Each(fn)
}

// ForgetFlows removes every flow from the eBPF flow table. It is safe for
// concurrent use.
func (h *Handle) ForgetFlows() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return err
	}
	var all []ebpf.Flow
	if err := p.Flows().Each(func(f ebpf.Flow) { all = append(all, f) }); err != nil {
		return err
	}
	return p.Flows().Forget(all)
}

// TranslatedTraffic returns how many packets and bytes the eBPF programs have
// translated, in both directions. Both are 0 if no programs are loaded. It is safe
// for concurrent use.
func (h *Handle) TranslatedTraffic() (packets, bytes uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return 0, 0, err
	}
	packets, bytes = p.Table().Translated()
	return packets, bytes, nil
}
