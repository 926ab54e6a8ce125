package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The programs of the fence.
const (
	FenceIn  = bpf.FenceProgFlFenceIn
	FenceOut = bpf.FenceProgFlFenceOut
)

// The priorities of the filters on kernels without tcx. Smaller ones run first.
const (
	fenceInPriority  = filterPriority - 1
	fenceOutPriority = filterPriority + 1
)

// Fence drops packets of virtual addresses whose deadline has passed (bpf/fence.c). The
// kernel compares deadlines by itself: also after the process was stopped or has died.
// Set, Delete and Deadlines may be called concurrently. All other methods must be called by
// one goroutine at a time, on a thread in the host's network namespace.
//
// Kernel: 5.8 (bpf_ktime_get_boot_ns).
type Fence struct {
	deadlines *ebpf.Map
	programs  map[string]*ebpf.Program
	attached  links
}

// Boottime returns the time of CLOCK_BOOTTIME, in which deadlines are given.
func Boottime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // fails for unknown clocks only
	return time.Duration(now.Nano())
}

// OpenFence opens the fence with the deadlines and links that an earlier process has pinned
// in a directory of a bpffs, or a new one. If pins is empty, the fence ends with the
// process.
func OpenFence(dir string) (*Fence, error) {
	spec, err := bpf.LoadFence()
	if err != nil {
		return nil, err
	}
	options := ebpf.CollectionOptions{}
	if dir != "" {
		if err := makePins(dir); err != nil {
			return nil, fmt.Errorf("create the directory of pins: %w", err)
		}
		spec.Maps[bpf.FenceMapFlFence].Pinning = ebpf.PinByName
		options.Maps.PinPath = filepath.Join(dir, "maps")
	}
	c, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return nil, explain(err)
	}
	f := &Fence{deadlines: c.Maps[bpf.FenceMapFlFence], programs: c.Programs,
		attached: links{pins(dir), map[string]link.Link{}}}
	if err := f.adopt(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// adopt opens the pinned links, and unpins those whose interface is gone.
func (f *Fence) adopt() error {
	if err := f.attached.adopt(); err != nil {
		return err
	}
	for name, l := range f.attached.byName {
		if living(l) {
			continue
		}
		if err := f.attached.detach(name); err != nil {
			return err
		}
	}
	return nil
}

// Attach fences an interface with Ethernet headers. It replaces the programs of an earlier
// process in one step.
func (f *Fence) Attach(ifindex int) error {
	return errors.Join(f.attach(FenceIn, ifindex), f.attach(FenceOut, ifindex))
}

func (f *Fence) attach(program string, ifindex int) error {
	if !hasTCX() {
		return attachFilter(fenceFilter(program, ifindex), f.programs[program])
	}
	// At the ingress the fence runs first, so that services at a virtual address are fenced, too.
	// At the egress it runs last, after LocalRealEgress has given a reply its source.
	hook, anchor := ebpf.AttachTCXIngress, link.Head()
	if program == FenceOut {
		hook, anchor = ebpf.AttachTCXEgress, link.Tail()
	}
	return f.attached.attach(pinName(program, ifindex), f.programs[program], func() (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: f.programs[program], Attach: hook,
			Anchor: anchor})
	})
}

// fenceHook returns the hook of a program on kernels without tcx.
func fenceHook(program string) uint32 {
	if program == FenceOut {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

func fenceFilter(program string, ifindex int) *netlink.BpfFilter {
	priority := uint16(fenceInPriority)
	if program == FenceOut {
		priority = fenceOutPriority
	}
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex, Parent: fenceHook(program),
		Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: priority},
		Name: filterName + program, DirectAction: true}
}

// Detach removes the fence from an interface. Its virtual addresses must have been removed
// before: they are no longer fenced.
func (f *Fence) Detach(ifindex int) error {
	var errs []error
	for _, program := range []string{FenceIn, FenceOut} {
		if hasTCX() {
			errs = append(errs, f.attached.detach(pinName(program, ifindex)))
		} else {
			errs = append(errs, deleteFilter(fenceFilter(program, ifindex)))
		}
	}
	return errors.Join(errs...)
}

// Set fences an address: its packets pass before the deadline only. A deadline of 0 drops
// all of them.
func (f *Fence) Set(a netip.Addr, deadline time.Duration) error {
	if err := f.deadlines.Put(fenced(a), uint64(deadline)); err != nil {
		return fmt.Errorf("set the deadline of %s: %w", a, err)
	}
	return nil
}

// Delete ends the fence of an address: its packets pass. The host must not have the
// address any more.
func (f *Fence) Delete(a netip.Addr) error {
	if err := f.deadlines.Delete(fenced(a)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete the deadline of %s: %w", a, err)
	}
	return nil
}

// Deadlines returns the fenced addresses.
func (f *Fence) Deadlines() (map[netip.Addr]time.Duration, error) {
	found := map[netip.Addr]time.Duration{}
	var key bpf.FenceFenced
	var deadline uint64
	entries := f.deadlines.Iterate()
	for entries.Next(&key, &deadline) {
		var b [16]byte
		for i, w := range key.W {
			binary.NativeEndian.PutUint32(b[4*i:], w)
		}
		found[netip.AddrFrom16(b).Unmap()] = time.Duration(deadline)
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read the deadlines of virtual addresses: %w", err)
	}
	return found, nil
}

func fenced(a netip.Addr) bpf.FenceFenced {
	var key bpf.FenceFenced
	b := a.As16()
	for i := range key.W {
		key.W[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return key
}

// Remove detaches the fence from all interfaces, and deletes its pins.
func (f *Fence) Remove() error {
	var errs []error
	for _, program := range []string{FenceIn, FenceOut} {
		found, err := withFilter(program, fenceHook(program))
		errs = append(errs, err)
		for ifindex := range found {
			errs = append(errs, deleteFilter(fenceFilter(program, ifindex)))
		}
	}
	for name := range f.attached.byName {
		errs = append(errs, f.attached.detach(name))
	}
	errs = append(errs, f.Close())
	if dir := string(f.attached.pins); dir != "" {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// Close closes the handles. What is pinned stays in force.
func (f *Fence) Close() error {
	errs := []error{f.deadlines.Close(), f.attached.close()}
	for _, p := range f.programs {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
