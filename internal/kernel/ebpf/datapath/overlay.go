package datapath

import (
	"errors"
	"net"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// Overlays are the eBPF programs at the VXLAN links of a host. Its methods are safe for
// concurrent use unless their comments say that the caller must lock the data path.
type Overlays struct {
	h *Handle
	// programs are nil until a network needs them, and if they are unsupported; after that they stay
	// loaded. links has the indices of the VXLAN links that have them, by name. The lock of the data path
	// guards all.
	programs    *ebpf.Overlays
	unsupported bool
	links       map[string]int
	// full are the objects whose ranges do not fit, by link. The kernel handles their frames.
	full map[string]plan.OverlayPrograms
}

// Prepare loads the programs, which takes 20 ms, so that the first sandbox of an overlay does not wait for that.
func (o *Overlays) Prepare() {
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	o.load()
}

// load loads the programs. It reports whether the kernel supports them: if it does not, it handles all frames, and the
// objects have no effect. The caller has locked the data path.
func (o *Overlays) load() bool {
	if o.programs == nil && !o.unsupported {
		loaded, err := ebpf.OpenOverlays()
		if o.unsupported = err != nil; !o.unsupported {
			o.programs, o.links, o.full = loaded, map[string]int{}, map[string]plan.OverlayPrograms{}
		}
	}
	return !o.unsupported
}

// Set attaches the programs to the VXLAN link of want, and replaces the ranges of addresses that they forward. Where the
// kernel does not support the programs, Set changes nothing: the kernel then handles the frames.
func (o *Overlays) Set(want plan.OverlayPrograms) error {
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	if !o.load() {
		return nil
	}
	return o.h.onLink(want.Link, func(l netlink.Link) error {
		ifindex := l.Attrs().Index
		if old, ok := o.links[want.Link]; ok && old != ifindex { // the link was created again
			if err := o.programs.Detach(old); err != nil {
				return err
			}
		}
		o.links[want.Link] = ifindex
		ranges := make([]ebpf.OverlayRange, 0, len(want.Ranges))
		for _, r := range want.Ranges {
			ranges = append(ranges, ebpf.OverlayRange(r))
		}
		header := ebpf.OverlayHeader{VNI: want.VNI, Port: want.Port, Local: want.Local}
		err := o.programs.SetRanges(ifindex, header, ranges)
		if errors.Is(err, ebpf.ErrRangesFull) {
			o.refuse(want, err)
			return o.programs.Suspend(ifindex)
		}
		delete(o.full, want.Link)
		return errors.Join(err, o.programs.Attach(ifindex))
	})
}

// refuse notes that the ranges of an object do not fit.
func (o *Overlays) refuse(want plan.OverlayPrograms, why error) {
	if _, again := o.full[want.Link]; !again && o.h.opt.OverlayRefused != nil {
		o.h.opt.OverlayRefused(want.Link, why)
	}
	o.full[want.Link] = want
}

// Del detaches the programs.
func (o *Overlays) Del(want plan.OverlayPrograms) error {
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	ifindex, ok := o.links[want.Link]
	if !ok {
		return nil
	}
	delete(o.links, want.Link)
	clear(o.full) // others may fit now
	return o.programs.Detach(ifindex)
}

// Read returns the programs of a VXLAN link. The caller has locked the data path.
func (o *Overlays) Read(want plan.OverlayPrograms) (plan.Object, error) {
	if !o.load() {
		return want, nil
	}
	ifindex, err := o.index(want.Link)
	if full, is := o.full[want.Link]; is && ifindex != 0 && plan.Equal(full, want) {
		return want, err
	}
	if err != nil || ifindex == 0 || !o.programs.Attached(ifindex) {
		return nil, err
	}
	header, ranges, err := o.programs.Ranges(ifindex)
	found := plan.OverlayPrograms{Link: want.Link, VNI: header.VNI, Port: header.Port, Local: header.Local}
	if len(ranges) == 0 { // nothing has the headers
		found.VNI, found.Port, found.Local = want.VNI, want.Port, want.Local
	}
	for _, r := range ranges {
		found.Ranges = append(found.Ranges, plan.OverlayRange(r))
	}
	return found, err
}

// index returns the index of a VXLAN link that has the programs, 0 if it has none.
func (o *Overlays) index(name string) (int, error) {
	l, err := o.h.rtnl.LinkByName("", name)
	if nlutil.Absent(err) {
		return 0, nil
	}
	if err != nil || o.links[name] != l.Attrs().Index {
		return 0, err
	}
	return l.Attrs().Index, nil
}

// SetStation redirects frames for a hardware address into a sandbox.
func (o *Overlays) SetStation(want plan.OverlayStation) error {
	mac, err := net.ParseMAC(want.MAC)
	if err != nil {
		return err
	}
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	if tunnel, ok := o.links[want.Tunnel]; ok {
		return o.h.onLink(want.Link, func(l netlink.Link) error {
			return o.programs.SetStation(tunnel, mac, l.Attrs().Index)
		})
	}
	return nil
}

// DelStation ends what SetStation began.
func (o *Overlays) DelStation(want plan.OverlayStation) error {
	mac, err := net.ParseMAC(want.MAC)
	if err != nil {
		return err
	}
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	if tunnel, ok := o.links[want.Tunnel]; ok {
		return o.programs.DeleteStation(tunnel, mac)
	}
	return nil
}

// ReadStation returns the object if frames for its hardware address go to its link. The
// caller has locked the data path.
func (o *Overlays) ReadStation(want plan.OverlayStation) (plan.Object, error) {
	if !o.load() {
		return want, nil
	}
	mac, err := net.ParseMAC(want.MAC)
	if err != nil {
		return nil, err
	}
	tunnel, ok := o.links[want.Tunnel]
	if !ok {
		return nil, nil
	}
	l, err := o.h.rtnl.LinkByName("", want.Link)
	if err != nil {
		return nil, err
	}
	ifindex, err := o.programs.Station(tunnel, mac)
	return plan.OrNil(want, ifindex == l.Attrs().Index), err
}
