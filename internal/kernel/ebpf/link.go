package ebpf

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The programs for the ingress of links.
const (
	Uplink  = bpf.FairleadProgFlUplink
	Sandbox = bpf.FairleadProgFlSandbox
)

// ingress are their names.
var ingress = []string{Uplink, Sandbox}

// onLinks reports whether the program is for links.
func onLinks(program string) bool {
	return atEgress(program) || slices.Contains(ingress, program)
}

// atEgress reports whether the program is for the egress of links.
func atEgress(program string) bool { return program == LocalRealEgress || program == SandboxOut }

// IsBare reports whether packets on the link have no link-layer header, as on
// tunnels.
func IsBare(l netlink.Link) bool { return l.Attrs().EncapType == "none" }

// isBareAt is IsBare for the link with the index. The calling thread must be in its
// network namespace.
func isBareAt(ifindex int) bool {
	l, err := netlink.LinkByIndex(ifindex)
	return err == nil && IsBare(l)
}

// HasLink reports whether the calling thread's network namespace has an interface. It
// returns true if the kernel does not answer. Callers use it to ignore the error of
// attaching a program to an interface that has just disappeared.
func HasLink(ifindex int) bool {
	_, err := netlink.LinkByIndex(ifindex)
	var missing netlink.LinkNotFoundError
	return !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV)
}

// pinName returns the name of the pin of a program on an interface.
func pinName(program string, ifindex int) string { return fmt.Sprintf("%s-%d", program, ifindex) }

// AttachLink attaches a program at the ingress of an interface, or replaces an earlier
// version there. It also attaches LocalRealEgress at the egress if links have it. bare
// says that frames have no link header. The calling thread must be in the interface's
// network namespace.
func (p *Datapath) AttachLink(program string, ifindex int, bare bool) error {
	err := p.attachLink(program, ifindex, bare)
	if err == nil && p.localRealEgress {
		err = p.attachLink(LocalRealEgress, ifindex, bare)
	}
	return err
}

func (p *Datapath) attachLink(program string, ifindex int, bare bool) error {
	prog, err := p.linkProgram(program, bare)
	if err != nil {
		return err
	}
	if program == Uplink {
		if err := p.Sources().setUplink(ifindex); err != nil {
			return err
		}
	}
	if !hasTCX() {
		return attachFilter(filter(program, ifindex), prog)
	}
	return p.attached.attach(pinName(program, ifindex), prog, func() (link.Link, error) {
		options := link.TCXOptions{Interface: ifindex, Program: prog, Attach: hookOf(program)}
		if program == LocalRealEgress { // before the fence, which checks the source
			options.Anchor = link.Head()
		}
		return link.AttachTCX(options)
	})
}

// hookOf returns the hook of a program.
func hookOf(program string) ebpf.AttachType {
	if atEgress(program) {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// DetachLink detaches a program from an interface, and LocalRealEgress with it. From an
// interface that is gone both are gone already. The calling thread must be in its
// network namespace.
func (p *Datapath) DetachLink(program string, ifindex int) error {
	err := p.detachLink(program, ifindex)
	if p.localRealEgress {
		err = errors.Join(err, p.detachLink(LocalRealEgress, ifindex))
	}
	return err
}

func (p *Datapath) detachLink(program string, ifindex int) error {
	detach := p.detachFilter
	if hasTCX() {
		detach = func(program string, ifindex int) error { return p.attached.detach(pinName(program, ifindex)) }
	}
	return errors.Join(detach(program, ifindex), p.Sources().forget(program, ifindex))
}

// LinksOf returns the interfaces that have the program, by index. It detaches the program
// from interfaces that left the namespace: in another one, an address of the host means
// something else. The calling thread must be in the host's network namespace.
func (p *Datapath) LinksOf(program string) (map[int]bool, error) {
	if !hasTCX() {
		return p.filtersOf(program)
	}
	found := map[int]bool{}
	for name, l := range p.attached.byName {
		var ifindex int
		if _, err := fmt.Sscanf(name, program+"-%d", &ifindex); err != nil {
			continue
		}
		info, err := l.Info()
		if err != nil {
			return nil, fmt.Errorf("read eBPF link %s: %w", name, err)
		}
		// The index becomes 0 when the interface is deleted.
		tcx := info.TCX()
		if tcx != nil && tcx.Ifindex != 0 && (program == Sandbox || program == SandboxOut || HasLink(ifindex)) {
			found[ifindex] = true
		} else if err := errors.Join(p.attached.detach(name), p.Sources().forget(program, ifindex)); err != nil {
			return nil, err
		}
	}
	return found, nil
}
