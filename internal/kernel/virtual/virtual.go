// Package virtual puts virtual addresses of a cluster on the links of a host: it fences
// them, adds and removes them, announces them to the neighbours, and finds the link of each.
// It does not decide which host has an address.
//
// Theory of operation. The fence (package ebpf) is at the link of each known address, and
// drops the packets of an address whose deadline has passed. The address itself has a
// limited lifetime, which is a second limit without this process: the kernel removes the
// address about two seconds after the deadline. So nothing but the pins of the fence stays
// behind when the process is killed, and the next one adopts these.
//
// Limits. A host accepts packets for its addresses on all of its links, and the fence is at
// one of them. A client that reaches the host through another link gets answers until the
// kernel has removed the address.
//
// Kernel: 5.14 (bpf_ktime_get_boot_ns; SO_NETNS_COOKIE names the pins).
package virtual

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attachEvery is how often Attach attaches the fence again, which changes nothing if the link has it.
const attachEvery = time.Second

// Handle has the virtual addresses of a host. Links and its changes may be used
// concurrently; all other methods must be called by one goroutine at a time.
type Handle struct {
	ns   *netns.Namespace
	pins string

	rtnl  *netlink.Handle
	fence *ebpf.Fence
	// attached are the links with the fence, and when it was attached or verified.
	attached map[int]time.Duration
	// frames is a packet socket for announcements.
	frames int
	relays map[netip.Addr]*relay
	// listening are packet sockets of Listen.
	listening map[netip.Addr]*os.File

	// mu protects the fields below. index is nil after the links have changed.
	mu    sync.Mutex
	links map[int]*link
	index *index
}

// New returns a Handle for a network namespace. pins is a directory in a bpffs, below which
// each host has its own. If it is empty, the fence ends with the process.
func New(ns *netns.Namespace, pins string) (*Handle, error) {
	h := &Handle{ns: ns, pins: pins, frames: -1, attached: map[int]time.Duration{}, links: map[int]*link{},
		relays: map[netip.Addr]*relay{}, listening: map[netip.Addr]*os.File{}}
	var err error
	if h.rtnl, err = ns.Netlink(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return h, nil
}

// Now returns the time of CLOCK_BOOTTIME, in which deadlines are given.
func Now() time.Duration { return ebpf.Boottime() }

// dir returns the host's directory of pins; empty if nothing is pinned.
func (h *Handle) dir() (string, error) {
	if h.pins == "" {
		return "", nil
	}
	cookie, err := h.ns.Cookie()
	if err != nil {
		return "", err
	}
	return filepath.Join(h.pins, fmt.Sprintf("%x-fence", cookie)), nil
}

// Left reports whether an earlier process has left a fence.
func (h *Handle) Left() bool {
	dir, err := h.dir()
	if err != nil || dir == "" {
		return false
	}
	_, err = os.Stat(dir)
	return err == nil
}

// Start loads the fence, or adopts the one of an earlier process. It does nothing if it has
// succeeded before.
func (h *Handle) Start() error {
	if h.fence != nil {
		return nil
	}
	dir, err := h.dir()
	if err != nil {
		return fmt.Errorf("load the fence of virtual addresses: %w", err)
	}
	return h.ns.Do(func() error {
		if h.frames < 0 {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open a packet socket: %w (root is needed)", err)
			}
			h.frames = fd
		}
		if h.fence, err = ebpf.OpenFence(dir); err != nil {
			return fmt.Errorf("load the fence of virtual addresses (needs Linux 5.14): %w", err)
		}
		return nil
	})
}

// Deadlines returns the fenced addresses with their deadlines.
func (h *Handle) Deadlines() (map[netip.Addr]time.Duration, error) { return h.fence.Deadlines() }

// Attach puts the fence at a link. It does nothing if the link had it within attachEvery: another program can
// remove it, on kernels without tcx (before Linux 6.6) with `tc qdisc del dev eth0 clsact`.
func (h *Handle) Attach(on Link) error {
	if at, has := h.attached[on.Index]; has && Now() < at+attachEvery {
		return nil
	}
	if err := h.ns.Do(func() error { return h.fence.Attach(on.Index) }); err != nil {
		return err
	}
	h.attached[on.Index] = Now()
	return nil
}

// Detach removes the fence from all links but these. Addresses of the others must be closed.
func (h *Handle) Detach(keep map[int]bool) error {
	var errs []error
	for index := range h.attached {
		if keep[index] {
			continue
		}
		delete(h.attached, index)
		errs = append(errs, h.ns.Do(func() error { return h.fence.Detach(index) }))
	}
	return errors.Join(errs...)
}

// Open lets the packets of an address pass until the deadline, and adds it to the link. The
// kernel removes it after life, unless Keep is called before. If Open fails, the address is
// closed.
func (h *Handle) Open(a netip.Addr, on Link, deadline, life time.Duration) error {
	h.stopRelay(a)
	err := h.Attach(on)
	if err == nil {
		err = h.fence.Set(a, deadline)
	}
	if err == nil {
		err = h.Keep(a, on, life)
	}
	if err != nil {
		return errors.Join(err, h.Close(a, on))
	}
	h.awaitLocal(a)
	return nil
}

// Extend moves the deadline of an address that is open.
func (h *Handle) Extend(a netip.Addr, deadline time.Duration) error { return h.fence.Set(a, deadline) }

// Keep adds the address to the link, or sets its lifetime again. It is in whole seconds.
func (h *Handle) Keep(a netip.Addr, on Link, life time.Duration) error {
	if err := nlutil.KeepLimited(h.rtnl, a, on.Index, life); err != nil {
		return fmt.Errorf("add address %s to link %s: %w", a, on.Name, err)
	}
	return nil
}

// awaitLocal waits until the kernel delivers packets for the address to this host. For IPv6 it
// adds the local route from a work queue.
func (h *Handle) awaitLocal(a netip.Addr) {
	for range 100 {
		routes, err := h.rtnl.RouteGet(a.AsSlice())
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// Close drops all packets of an address from now on, and removes it from the link. If the
// index of the link is 0, it removes what an earlier process has left on any link.
func (h *Handle) Close(a netip.Addr, on Link) error {
	h.Deaf(a)
	return errors.Join(h.fence.Set(a, 0), h.remove(a, on))
}

// Forget removes an address that is closed from the fence. Its packets pass.
func (h *Handle) Forget(a netip.Addr) error { return h.fence.Delete(a) }

// Remove removes the fence and its pins. All addresses must be closed.
func (h *Handle) Remove() error {
	if h.fence == nil {
		return nil
	}
	fence := h.fence
	h.fence, h.attached = nil, map[int]time.Duration{}
	return h.ns.Do(fence.Remove)
}

// End closes the handles. Addresses stay open until their deadlines.
func (h *Handle) End() error {
	var errs []error
	if h.fence != nil {
		errs = append(errs, h.fence.Close())
	}
	if h.frames >= 0 {
		errs = append(errs, unix.Close(h.frames))
	}
	for a := range h.relays {
		h.stopRelay(a)
	}
	for a := range h.listening {
		h.Deaf(a)
	}
	h.fence, h.frames = nil, -1
	h.rtnl.Close()
	return errors.Join(errs...)
}

func (h *Handle) remove(a netip.Addr, on Link) error {
	if on.Index == 0 {
		return h.removeAnywhere(a)
	}
	if err := nlutil.DropLimited(h.rtnl, a, on.Index); err != nil {
		return fmt.Errorf("remove address %s from link %s: %w", a, on.Name, err)
	}
	return nil
}

// removeAnywhere removes a virtual address from the links that have it.
func (h *Handle) removeAnywhere(a netip.Addr) error {
	all, err := nlutil.Retry(func() ([]netlink.Addr, error) { return h.rtnl.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	var errs []error
	for _, found := range all {
		if p := nlutil.Prefix(found.IP, found.Mask); p.Addr() == a && nlutil.IsLimited(p, found.Flags) {
			errs = append(errs, h.remove(a, Link{Index: found.LinkIndex, Name: fmt.Sprint(found.LinkIndex)}))
		}
	}
	return errors.Join(errs...)
}
