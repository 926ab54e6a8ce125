package ebpf

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"fairlead/internal/kernel/nlutil"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// filterName is the prefix of the names of Fairlead's filters; the program's name
// follows.
const filterName = "fairlead:"

// filterPriority and filterHandle identify Fairlead's filter on a link.
const (
	filterPriority = 0xfa
	filterHandle   = 0xfa1e
)

// hasTCX reports whether programs attach to a link with TCX (Linux 6.6). Older kernels
// use a cls_bpf filter of the clsact qdisc, which stays without a pin. The test attaches
// a program that does nothing (TCX_NEXT) to the loopback device, which is the first
// device of every namespace.
var hasTCX = sync.OnceValue(func() bool {
	next, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		return false
	}
	defer next.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: 1, Program: next, Attach: ebpf.AttachTCXIngress})
	return err == nil && l.Close() == nil
})

func qdisc(ifindex int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

// parentOf returns the hook of a filter for a program.
func parentOf(program string) uint32 {
	if atEgress(program) {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

func filter(program string, ifindex int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex, Parent: parentOf(program),
			Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority},
		Name: filterName + program, DirectAction: true}
}

// attachFilter attaches the program with Fairlead's filter. It replaces an existing
// filter in one step.
func attachFilter(f *netlink.BpfFilter, prog *ebpf.Program) error {
	if err := netlink.QdiscAdd(qdisc(f.LinkIndex)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact to interface %d: %w", f.LinkIndex, err)
	}
	f.Fd = prog.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("attach eBPF program %s to interface %d: %w", strings.TrimPrefix(f.Name, filterName),
			f.LinkIndex, err)
	}
	return nil
}

// renewFilters replaces the programs of Fairlead's filters with those of this data path.
func (p *Datapath) renewFilters() error {
	if hasTCX() {
		return nil
	}
	for _, program := range append([]string{LocalRealEgress, SandboxOut}, ingress...) {
		found, err := p.filtersOf(program)
		if err != nil {
			return err
		}
		for ifindex := range found {
			prog, err := p.linkProgram(program, isBareAt(ifindex))
			if err == nil {
				err = attachFilter(filter(program, ifindex), prog)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// detachFilter removes the filter of a program from an interface.
func (p *Datapath) detachFilter(program string, ifindex int) error {
	return deleteFilter(filter(program, ifindex))
}

// deleteFilter removes Fairlead's filter, and the qdisc if it has no other filter.
func deleteFilter(f *netlink.BpfFilter) error {
	if err := netlink.FilterDel(f); err != nil && !absent(err) {
		return fmt.Errorf("detach eBPF program %s from interface %d: %w", f.Name, f.LinkIndex, err)
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		others, err := filtersAt(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: f.LinkIndex}}, parent)
		if err != nil || len(others) > 0 {
			return nil
		}
	}
	if err := netlink.QdiscDel(qdisc(f.LinkIndex)); err != nil && !absent(err) {
		return fmt.Errorf("remove clsact from interface %d: %w", f.LinkIndex, err)
	}
	return nil
}

func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

// filtersAt returns the filters of a link below the parent.
func filtersAt(l netlink.Link, parent uint32) ([]netlink.Filter, error) {
	return nlutil.Retry(func() ([]netlink.Filter, error) { return netlink.FilterList(l, parent) })
}

// filtersOf returns the interfaces whose filter has the program.
func (p *Datapath) filtersOf(program string) (map[int]bool, error) {
	return withFilter(program, parentOf(program))
}

// withFilter returns the interfaces that have Fairlead's filter of a program at a hook.
func withFilter(program string, parent uint32) (map[int]bool, error) {
	links, err := nlutil.Retry(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	found := map[int]bool{}
	for _, l := range links {
		filters, err := filtersAt(l, parent)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list filters: %w", err)
		}
		if err != nil {
			continue // no clsact
		}
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok && b.Name == filterName+program {
				found[l.Attrs().Index] = true
			}
		}
	}
	return found, nil
}
