package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The programs of overlays.
const (
	OverlayIn  = bpf.OverlayProgFlOverlayIn
	OverlayOut = bpf.OverlayProgFlOverlayOut
)

// Overlays are the programs at the VXLAN links of overlays (bpf/overlay.c). They are not
// pinned, and end with the process; then the kernel handles the frames. Overlays are not
// safe for concurrent use.
//
// Kernel: 6.6 (TCX).
type Overlays struct {
	programs map[string]*ebpf.Program
	maps     map[string]*ebpf.Map
	// attached has the links of both programs for each VXLAN link, by its index.
	attached map[int][]link.Link
}

// OverlayRange is a range of addresses and the host that has it. Without a valid host
// the kernel handles frames for the range.
type OverlayRange struct {
	Prefix netip.Prefix
	Host   netip.Addr
}

// OverlayHeader is what the headers of an overlay's datagrams have in common.
type OverlayHeader struct {
	VNI   uint32
	Port  uint16
	Local netip.Addr
}

// OpenOverlays loads the programs. The calling thread's network namespace has a loopback device. Returns an error if
// this kernel does not support the programs.
func OpenOverlays() (*Overlays, error) {
	if !hasTCX() {
		return nil, errors.New("the kernel has no TCX hooks: they need Linux 6.6 or later")
	}
	spec, err := bpf.LoadOverlay()
	if err != nil {
		return nil, err
	}
	c, err := collection(spec, nil)
	if err != nil {
		return nil, err
	}
	return &Overlays{programs: c.Programs, maps: c.Maps, attached: map[int][]link.Link{}}, nil
}

// Attach attaches the programs to a VXLAN link. The calling thread must be in the link's
// network namespace.
func (o *Overlays) Attach(ifindex int) error {
	if o.Attached(ifindex) {
		return nil
	}
	if err := o.detach(ifindex); err != nil {
		return err
	}
	for program, hook := range map[string]ebpf.AttachType{OverlayIn: ebpf.AttachTCXIngress,
		OverlayOut: ebpf.AttachTCXEgress} {
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: o.programs[program], Attach: hook,
			Anchor: link.Tail()})
		if err != nil {
			return errors.Join(fmt.Errorf("attach eBPF program %s: %w", pinName(program, ifindex), err),
				o.detach(ifindex))
		}
		o.attached[ifindex] = append(o.attached[ifindex], l)
	}
	return nil
}

// Attached reports whether both programs are attached to a VXLAN link.
func (o *Overlays) Attached(ifindex int) bool {
	links := o.attached[ifindex]
	return len(links) == 2 && !slices.ContainsFunc(links, func(l link.Link) bool { return !living(l) })
}

// AllAttached returns false if another process has detached a program from one of the links to which Attach attached
// both. Links that Detach has detached do not count.
func (o *Overlays) AllAttached() bool {
	for ifindex := range o.attached {
		if !o.Attached(ifindex) {
			return false
		}
	}
	return true
}

func (o *Overlays) detach(ifindex int) error {
	var errs []error
	for _, l := range o.attached[ifindex] {
		errs = append(errs, l.Close())
	}
	delete(o.attached, ifindex)
	return errors.Join(errs...)
}

// Detach detaches the programs from a VXLAN link, which may be gone, and forgets its
// ranges and sandboxes.
func (o *Overlays) Detach(ifindex int) error {
	errs := []error{o.Suspend(ifindex)}
	for _, mac := range o.stations(ifindex) {
		errs = append(errs, o.DeleteStation(ifindex, mac))
	}
	return errors.Join(errs...)
}

// Suspend detaches the programs from a VXLAN link, and forgets its ranges. Its sandboxes stay known.
func (o *Overlays) Suspend(ifindex int) error {
	return errors.Join(o.detach(ifindex), o.SetRanges(ifindex, OverlayHeader{}, nil))
}

// ErrRangesFull is the error of SetRanges if the ranges of all overlays do not fit the map.
var ErrRangesFull = errors.New("the overlays of this host have more ranges than the eBPF programs support (65,536)")

// SetRanges replaces the ranges behind a VXLAN link. Returns ErrRangesFull if they do not fit.
func (o *Overlays) SetRanges(ifindex int, h OverlayHeader, ranges []OverlayRange) error {
	m := o.maps[bpf.OverlayMapFlRanges]
	stale, err := o.ranges(ifindex)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		key, value := rangeKey(ifindex, r.Prefix), remoteOf(h, r.Host)
		if old, ok := stale[key]; !ok || old != value {
			err := m.Put(key, value)
			if errors.Is(err, unix.ENOSPC) {
				return ErrRangesFull
			}
			if err != nil {
				return fmt.Errorf("set the host of %s: %w", r.Prefix, err)
			}
		}
		delete(stale, key)
	}
	for key := range stale {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget the host of %s: %w", rangePrefix(key), err)
		}
	}
	return nil
}

// Ranges returns the ranges behind a VXLAN link in the order of their prefixes, and what
// their headers have in common.
func (o *Overlays) Ranges(ifindex int) (h OverlayHeader, all []OverlayRange, err error) {
	found, err := o.ranges(ifindex)
	for key, value := range found {
		r := OverlayRange{Prefix: rangePrefix(key)}
		if value.Host != 0 {
			r.Host = addr4(value.Host)
		}
		h = OverlayHeader{VNI: value.Vni, Port: uint16(value.Port), Local: addr4(value.Local)}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b OverlayRange) int { return a.Prefix.Compare(b.Prefix) })
	return h, all, err
}

func (o *Overlays) ranges(ifindex int) (map[bpf.OverlayRange]bpf.OverlayRemote, error) {
	found := map[bpf.OverlayRange]bpf.OverlayRemote{}
	var key bpf.OverlayRange
	var value bpf.OverlayRemote
	entries := o.maps[bpf.OverlayMapFlRanges].Iterate()
	for entries.Next(&key, &value) {
		if key.Ifindex == uint32(ifindex) {
			found[key] = value
		}
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read the ranges of overlays: %w", err)
	}
	return found, nil
}

func rangeKey(ifindex int, p netip.Prefix) bpf.OverlayRange {
	return bpf.OverlayRange{Bits: uint32(32 + p.Bits()), Ifindex: uint32(ifindex), Addr: word(p.Masked().Addr())}
}

func rangePrefix(key bpf.OverlayRange) netip.Prefix {
	return netip.PrefixFrom(addr4(key.Addr), int(key.Bits)-32)
}

func remoteOf(h OverlayHeader, host netip.Addr) bpf.OverlayRemote {
	r := bpf.OverlayRemote{Local: word(h.Local), Vni: h.VNI, Port: uint32(h.Port)}
	if host.IsValid() {
		r.Host = word(host)
	}
	return r
}

// word returns an IPv4 address in network byte order.
func word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

func addr4(w uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], w)
	return netip.AddrFrom4(b)
}

// SetStation redirects frames for a hardware address behind a VXLAN link into the sandbox
// behind the host's link.
func (o *Overlays) SetStation(tunnel int, mac net.HardwareAddr, ifindex int) error {
	if err := o.maps[bpf.OverlayMapFlStations].Put(stationKey(tunnel, mac), uint32(ifindex)); err != nil {
		return fmt.Errorf("set the link of %s: %w", mac, err)
	}
	return nil
}

// Station returns the index of the link that SetStation wrote, 0 if there is none.
func (o *Overlays) Station(tunnel int, mac net.HardwareAddr) (int, error) {
	var ifindex uint32
	err := o.maps[bpf.OverlayMapFlStations].Lookup(stationKey(tunnel, mac), &ifindex)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, fmt.Errorf("read the link of %s: %w", mac, err)
	}
	return int(ifindex), nil
}

// DeleteStation ends what SetStation began. A missing entry is no error.
func (o *Overlays) DeleteStation(tunnel int, mac net.HardwareAddr) error {
	err := o.maps[bpf.OverlayMapFlStations].Delete(stationKey(tunnel, mac))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget the link of %s: %w", mac, err)
	}
	return nil
}

// stations returns the hardware addresses behind a VXLAN link.
func (o *Overlays) stations(tunnel int) (all []net.HardwareAddr) {
	var key bpf.OverlayStation
	var ifindex uint32
	entries := o.maps[bpf.OverlayMapFlStations].Iterate()
	for entries.Next(&key, &ifindex) {
		if key.Ifindex == uint32(tunnel) {
			all = append(all, slices.Clone(key.Mac[:]))
		}
	}
	return all
}

func stationKey(tunnel int, mac net.HardwareAddr) bpf.OverlayStation {
	key := bpf.OverlayStation{Ifindex: uint32(tunnel)}
	copy(key.Mac[:], mac)
	return key
}

// Close detaches the programs from all links.
func (o *Overlays) Close() error {
	var errs []error
	for ifindex := range o.attached {
		errs = append(errs, o.detach(ifindex))
	}
	for _, p := range o.programs {
		errs = append(errs, p.Close())
	}
	closeAll(o.maps)
	return errors.Join(errs...)
}
