package datapath

import (
	"errors"
	"net"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// hasOverlays reports whether the kernel supports the programs of overlays. If it does
// not, it handles all frames, and the objects have no effect.
func hasOverlays() bool { return ebpf.HasOverlays() == nil }

// SetOverlay attaches the programs to a VXLAN link, and writes its ranges.
func (h *Handle) SetOverlay(o plan.OverlayPrograms) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !hasOverlays() {
		return nil
	}
	if h.overlays == nil {
		loaded, err := ebpf.OpenOverlays()
		if err != nil {
			return err
		}
		h.overlays, h.overlayLinks = loaded, map[string]int{}
	}
	return h.onLink(o.Link, func(l netlink.Link) error {
		ifindex := l.Attrs().Index
		if old, ok := h.overlayLinks[o.Link]; ok && old != ifindex { // the link was created again
			if err := h.overlays.Detach(old); err != nil {
				return err
			}
		}
		h.overlayLinks[o.Link] = ifindex
		ranges := make([]ebpf.OverlayRange, 0, len(o.Ranges))
		for _, r := range o.Ranges {
			ranges = append(ranges, ebpf.OverlayRange(r))
		}
		header := ebpf.OverlayHeader{VNI: o.VNI, Port: o.Port, Local: o.Local}
		return errors.Join(h.overlays.SetRanges(ifindex, header, ranges), h.overlays.Attach(ifindex))
	})
}

// DelOverlay detaches the programs. Those of the last link are closed.
func (h *Handle) DelOverlay(o plan.OverlayPrograms) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ifindex, ok := h.overlayLinks[o.Link]
	if !ok {
		return nil
	}
	err := h.overlays.Detach(ifindex)
	delete(h.overlayLinks, o.Link)
	if len(h.overlayLinks) == 0 {
		err = errors.Join(err, h.overlays.Close())
		h.overlays = nil
	}
	return err
}

// ReadOverlay returns the programs of a VXLAN link. The caller has locked the data path.
func (h *Handle) ReadOverlay(o plan.OverlayPrograms) (plan.Object, error) {
	if !hasOverlays() {
		return o, nil
	}
	ifindex, err := h.overlayIndex(o.Link)
	if err != nil || ifindex == 0 || !h.overlays.Attached(ifindex) {
		return nil, err
	}
	header, ranges, err := h.overlays.Ranges(ifindex)
	found := plan.OverlayPrograms{Link: o.Link, VNI: header.VNI, Port: header.Port, Local: header.Local}
	if len(ranges) == 0 { // nothing has the headers
		found.VNI, found.Port, found.Local = o.VNI, o.Port, o.Local
	}
	for _, r := range ranges {
		found.Ranges = append(found.Ranges, plan.OverlayRange(r))
	}
	return found, err
}

// overlayIndex returns the index of a VXLAN link that has the programs, 0 if it has none.
func (h *Handle) overlayIndex(name string) (int, error) {
	l, err := h.rtnl.LinkByName("", name)
	if nlutil.Absent(err) {
		return 0, nil
	}
	if err != nil || h.overlayLinks[name] != l.Attrs().Index {
		return 0, err
	}
	return l.Attrs().Index, nil
}

// SetStation redirects frames for a hardware address into a sandbox.
func (h *Handle) SetStation(o plan.OverlayStation) error {
	mac, err := net.ParseMAC(o.MAC)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if tunnel, ok := h.overlayLinks[o.Tunnel]; ok {
		return h.onLink(o.Link, func(l netlink.Link) error {
			return h.overlays.SetStation(tunnel, mac, l.Attrs().Index)
		})
	}
	return nil
}

// DelStation ends what SetStation began.
func (h *Handle) DelStation(o plan.OverlayStation) error {
	mac, err := net.ParseMAC(o.MAC)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if tunnel, ok := h.overlayLinks[o.Tunnel]; ok {
		return h.overlays.DeleteStation(tunnel, mac)
	}
	return nil
}

// ReadStation returns the object if frames for its hardware address go to its link. The
// caller has locked the data path.
func (h *Handle) ReadStation(o plan.OverlayStation) (plan.Object, error) {
	if !hasOverlays() {
		return o, nil
	}
	mac, err := net.ParseMAC(o.MAC)
	if err != nil {
		return nil, err
	}
	tunnel, ok := h.overlayLinks[o.Tunnel]
	if !ok {
		return nil, nil
	}
	l, err := h.rtnl.LinkByName("", o.Link)
	if err != nil {
		return nil, err
	}
	ifindex, err := h.overlays.Station(tunnel, mac)
	return plan.OrNil(o, ifindex == l.Attrs().Index), err
}
