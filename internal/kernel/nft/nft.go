package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// largeBuffers lets one transaction hold tens of thousands of elements.
func largeBuffers(c *netlink.Conn) error {
	const size = 32 << 20
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size))
	})
	return errors.Join(err, failed)
}

// portOf returns the port of a netlink socket.
func portOf(c *netlink.Conn) (port uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var at unix.Sockaddr
	failed := raw.Control(func(fd uintptr) { at, err = unix.Getsockname(int(fd)) })
	if nl, ok := at.(*unix.SockaddrNetlink); ok {
		port = nl.Pid
	}
	return port, errors.Join(failed, err)
}

// Transact applies the steps on Fairlead's nft tables in one transaction: all of
// them or none. Removals come first, so that a changed element replaces its old
// form. Thousands of services take several transactions; each has whole services.
func (h *Handle) Transact(ops []plan.Op) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	services, others := sortServices(ops)
	elements, err := sortElements(others)
	if err != nil {
		return err
	}
	if h.nft == nil {
		if !slices.ContainsFunc(ops, func(op plan.Op) bool { return !op.Del }) {
			return nil
		}
		return h.noNft
	}
	made := services.makeTable
	if !made {
		if services.unbound, err = h.unbind(services.ops); err != nil {
			return err
		}
	}
	end, err := h.standIn(elements, services)
	if err != nil {
		return errors.Join(err, h.bindAgain(services.ops))
	}
	begun, left, err := h.carryOut(false, elements, services)
	if err != nil {
		err = errors.Join(err, h.dropNewTable(made && begun), h.bindAgain(left))
	}
	return errors.Join(err, end())
}

// carryOut carries out the steps on the tables, or on their stand-ins. If a transaction fails, begun reports whether
// one before it has been carried out, and left are the steps on services that have not.
func (h *Handle) carryOut(standsIn bool, elements elementSteps, services serviceOps) (begun bool, left []plan.Op,
	err error) {
	b := h.begin()
	b.standsIn = standsIn
	b.queueElements(elements)
	for first := true; first || len(services.ops) > 0; first = false {
		if !first {
			b = h.begin()
			b.standsIn = standsIn
		}
		left = services.ops
		if services, err = h.queueServices(b, services); err == nil {
			err = b.commit()
		}
		if err != nil {
			return !first, left, fmt.Errorf("change nft table %s: %w", plan.Mark, err)
		}
	}
	return true, nil, nil
}

// queueElements adds the steps on table fairlead to the transaction.
func (b *batch) queueElements(steps elementSteps) {
	switch {
	case steps.dropTable:
		b.dropTable(table().Table)
		b.dropTable(standInOf(table().Table))
		return
	case steps.makeTable:
		b.makeTable(table())
		steps.del = nil
	}
	for _, s := range table().sets {
		b.delElements(s, steps.del[s.Name])
		b.addElements(s, steps.add[s.Name])
	}
}

// elementSteps are steps on table fairlead, by set.
type elementSteps struct {
	makeTable, dropTable bool
	add, del             map[string][]nftables.SetElement
}

func sortElements(ops []plan.Op) (elementSteps, error) {
	b := elementSteps{add: map[string][]nftables.SetElement{}, del: map[string][]nftables.SetElement{}}
	for _, op := range ops {
		if _, ok := op.Object.(plan.Table); ok {
			b.makeTable, b.dropTable = !op.Del, op.Del
			continue
		}
		if old := op.Old; old != nil {
			set, e, err := encodeElement(old)
			if err != nil {
				return b, err
			}
			b.del[set] = append(b.del[set], e)
		}
		set, e, err := encodeElement(op.Object)
		if err != nil {
			return b, err
		}
		if op.Del {
			b.del[set] = append(b.del[set], e)
		} else {
			b.add[set] = append(b.add[set], e)
		}
	}
	return b, nil
}

// encodeElement returns the set and the netlink form of an element. Every
// field of a concatenation is padded to 4 bytes.
func encodeElement(o plan.Object) (set string, e nftables.SetElement, err error) {
	switch o := o.(type) {
	case plan.NFTMapping:
		return o.Map(), encodeMapping(o), nil
	case plan.Member:
		return o.Name(), encodeMember(o), nil
	case plan.Proxied:
		e = encodeMapping(plan.NFTMapping{Host: o.Host, Proto: o.Proto, Ports: o.Ports})
		e.Val = nil
		return o.Name(), e, nil
	}
	return "", e, fmt.Errorf("%T is not an nft element", o)
}

func encodeMapping(m plan.NFTMapping) nftables.SetElement {
	proto := []byte{nlutil.Protocols[m.Proto], 0, 0, 0}
	first, last := port(m.Ports.First), port(m.Ports.Last)
	to := m.To.AsSlice()
	if m.ToPort == 0 {
		lo, hi := prefixEnds(m.HostRange())
		return nftables.SetElement{Key: slices.Concat(lo, proto, first), KeyEnd: slices.Concat(hi, proto, last),
			Val: to}
	}
	to = append(to, port(m.ToPort)...)
	if m.Host.IsUnspecified() {
		return nftables.SetElement{Key: slices.Concat(proto, first), Val: to}
	}
	return nftables.SetElement{Key: slices.Concat(m.Host.AsSlice(), proto, first), Val: to}
}

func encodeMember(m plan.Member) nftables.SetElement {
	if m.Set == plan.SetWithin {
		return nftables.SetElement{Key: slices.Concat(ifname(m.Link), ifname(m.Link))}
	}
	if m.Link != "" {
		return nftables.SetElement{Key: ifname(m.Link)}
	}
	srcLo, srcHi := prefixEnds(m.Src)
	dstLo, dstHi := prefixEnds(m.Dst)
	return nftables.SetElement{Key: slices.Concat(srcLo, dstLo), KeyEnd: slices.Concat(srcHi, dstHi)}
}

func port(p uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, p), 0, 0) }

func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

// prefixEnds returns the first and last address of a prefix.
func prefixEnds(p netip.Prefix) (first, last []byte) {
	return p.Masked().Addr().AsSlice(), rules.LastOf(p)
}
