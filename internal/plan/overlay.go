package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/escape"
)

// OverlayPrograms are the eBPF programs at the VXLAN link of an overlay that forwards by
// ranges. They send and receive frames with fewer steps than the kernel, which handles all
// frames where it does not support the programs, and after the daemon has ended.
type OverlayPrograms struct {
	// Link is the VXLAN link.
	Link string
	VNI  uint32
	Port uint16
	// Local is the host's address. Without a valid one the kernel sends all frames.
	Local netip.Addr
	// Ranges are sorted by their prefixes.
	Ranges []OverlayRange
}

// OverlayRange is a range of addresses and the host that has it. Without a valid host
// the kernel handles frames for the range.
type OverlayRange struct {
	Prefix netip.Prefix
	Host   netip.Addr
}

func (o OverlayPrograms) equal(other Object) bool {
	b, ok := other.(OverlayPrograms)
	return ok && o.Link == b.Link && o.VNI == b.VNI && o.Port == b.Port && o.Local == b.Local &&
		slices.Equal(o.Ranges, b.Ranges)
}

// Key implements Object.
func (o OverlayPrograms) Key() string { return "bpf overlay " + o.Link }

// Add implements Object.
func (o OverlayPrograms) Add() []string {
	var b strings.Builder
	fmt.Fprintf(&b, "# ebpf: attach fl_overlay_in and fl_overlay_out to %s", escape.Shell(o.Link))
	if o.Local.IsValid() {
		fmt.Fprintf(&b, " vni %d port %d local %s", o.VNI, o.Port, o.Local)
	}
	for _, r := range o.Ranges {
		if fmt.Fprintf(&b, " range %s", r.Prefix); r.Host.IsValid() {
			fmt.Fprintf(&b, " host %s", r.Host)
		}
	}
	return []string{b.String()}
}

// Del implements Object. The programs are also detached if the link is deleted.
func (o OverlayPrograms) Del() []string {
	return []string{"# ebpf: detach fl_overlay_in and fl_overlay_out from " + escape.Shell(o.Link)}
}

func (o OverlayPrograms) base() string { return end("", o.Link) }

// OverlayStation makes the programs of an overlay redirect frames for a hardware address
// straight into a sandbox.
type OverlayStation struct {
	// Tunnel is the VXLAN link, and Link the host's end of the sandbox's link.
	Tunnel, Link string
	MAC          string
}

// Key implements Object.
func (s OverlayStation) Key() string { return "bpf station " + s.Tunnel + " " + s.MAC }

// Add implements Object.
func (s OverlayStation) Add() []string {
	return []string{fmt.Sprintf("# ebpf: redirect %s from %s into the sandbox behind %s", s.MAC,
		escape.Shell(s.Tunnel), escape.Shell(s.Link))}
}

// Del implements Object.
func (s OverlayStation) Del() []string {
	return []string{fmt.Sprintf("# ebpf: do not redirect %s from %s", s.MAC, escape.Shell(s.Tunnel))}
}

func (s OverlayStation) base() string { return end("", s.Link) }

func (s OverlayStation) bases() []string { return []string{end("", s.Link), end("", s.Tunnel)} }
