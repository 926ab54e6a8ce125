package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/kernel/ebpf"

	"github.com/vishvananda/netlink"
)

// XDP says which uplinks get the fast path, which drivers run.
type XDP string

// The choices; the empty one is XDPNever.
const (
	// XDPAuto is those of network cards (PCI). Links that are software, on this
	// host or on the one that it is a guest of, would lose segmentation offload.
	XDPAuto XDP = "auto"
	// XDPAlways is every uplink whose driver takes it.
	XDPAlways XDP = "always"
	XDPNever  XDP = "never"
)

// ParseXDP reads a choice.
func ParseXDP(s string) (XDP, error) {
	if all := []XDP{XDPAuto, XDPAlways, XDPNever}; !slices.Contains(all, XDP(s)) {
		return "", fmt.Errorf("xdp %q: want auto, always or never", s)
	}
	return XDP(s), nil
}

// FastLink is an uplink that is one for the fast path.
type FastLink struct {
	Link string `json:"link"`
	// Refused says why the fast path is not there: packets go by tc.
	Refused string `json:"refused,omitempty"`
}

// String names the link, and why it is left to tc.
func (f FastLink) String() string {
	if f.Refused == "" {
		return f.Link
	}
	return "not on " + f.Link + ": " + f.Refused
}

// FastPath returns the uplinks that the fast path is for, and how many packets
// have gone by it; none where no service needs it.
func (h *Host) FastPath() ([]FastLink, uint64, error) {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, 0, err
	}
	links, err := h.fastLinks()
	if err != nil {
		return nil, 0, err
	}
	found, err := p.XDPLinks()
	if err != nil || len(found)+len(h.fast) == 0 {
		return nil, 0, err
	}
	var all []FastLink
	for _, l := range links {
		f := FastLink{Link: l.Attrs().Name}
		if why := h.fast[f.Link]; why != nil && found[l.Attrs().Index] == nil {
			f.Refused = why.Error()
		}
		all = append(all, f)
	}
	packets, err := p.XDPPackets()
	return all, packets, err
}

// fastLinks returns the uplinks that the fast path is for.
func (h *Host) fastLinks() ([]netlink.Link, error) {
	if h.opt.XDP != XDPAuto && h.opt.XDP != XDPAlways {
		return nil, nil
	}
	links, err := h.uplinks()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(links, func(l netlink.Link) bool {
		a := l.Attrs()
		return isBare(l) || len(a.HardwareAddr) != 6 || h.opt.XDP == XDPAuto && a.ParentDevBus != "pci"
	}), nil
}

// setFastPath has the drivers run the program, and takes it from those that are
// not to. A link whose driver refuses it, or on which somebody else's is, is left
// to tc.
func (h *Host) setFastPath(p *ebpf.Datapath) error {
	links, err := h.fastLinks()
	if err != nil {
		return err
	}
	wanted, before := map[int]bool{}, h.fast
	h.fast = make(map[string]error, len(links))
	err = h.ns.Do(func() error {
		if err := p.Serve(); err != nil {
			return err
		}
		var errs []error
		for _, l := range links {
			a := l.Attrs()
			wanted[a.Index] = true
			err := p.AttachXDP(a.Index, a.HardwareAddr)
			if errors.Is(err, ebpf.ErrNoXDP) || errors.Is(err, ebpf.ErrOccupied) {
				h.fast[a.Name] = err
				continue
			}
			if err != nil && !ebpf.HasLink(a.Index) {
				continue
			}
			if h.fast[a.Name] = nil; err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", a.Name, err))
			}
		}
		return errors.Join(append(errs, h.pruneFast(p, wanted))...)
	})
	h.reportRefused(before)
	return err
}

// reportRefused tells once of each link that is left to tc.
func (h *Host) reportRefused(before map[string]error) {
	if h.opt.Refused == nil {
		return
	}
	for _, link := range slices.Sorted(maps.Keys(h.fast)) {
		if why := h.fast[link]; why != nil && before[link] == nil {
			h.opt.Refused(link, why)
		}
	}
}

func (h *Host) pruneFast(p *ebpf.Datapath, wanted map[int]bool) error {
	found, err := p.XDPLinks()
	errs := []error{err}
	for ifindex := range found {
		if !wanted[ifindex] {
			errs = append(errs, p.DetachXDP(ifindex))
		}
	}
	return errors.Join(errs...)
}

func (h *Host) delFastPath(p *ebpf.Datapath) error {
	h.fast = nil
	return h.ns.Do(func() error { return h.pruneFast(p, nil) })
}

// hasFastPath reports whether all drivers that take the program run it, for their
// links' addresses, and no others; or else whether some run it.
func (h *Host) hasFastPath(p *ebpf.Datapath) (whole, some bool, err error) {
	links, err := h.fastLinks()
	if err != nil {
		return false, false, err
	}
	found, err := p.XDPLinks()
	if err != nil {
		return false, false, err
	}
	some = len(found) > 0
	for _, l := range links {
		a := l.Attrs()
		mac, there := found[a.Index]
		delete(found, a.Index)
		if why, known := h.fast[a.Name]; known && why != nil && !there {
			continue
		}
		if !there || mac.String() != a.HardwareAddr.String() {
			return false, some, nil
		}
	}
	return len(found) == 0, some, nil
}
