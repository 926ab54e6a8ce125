package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"fairlead/internal/plan"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Check looks at what the kernel tells nobody of: sysctls of the host (see
// Settings), eBPF programs and their pins, and the table that they share. What
// is not as it should be is among what Take returns next; Check reports whether
// there is any. It must not be called while something is being applied.
func (w *Watcher) Check() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := false
	var buf [64]byte
	for name, s := range w.settings {
		// The file of a link that has gone is no concern of this.
		if n, _ := s.file.ReadAt(buf[:], 0); n > 0 && string(bytes.TrimSpace(buf[:n])) != s.want {
			put(&w.seen.settings, name, true)
			bad = true
		}
	}
	attached, intact := w.host.checkBPF()
	w.seen.bpf, w.seen.leads = w.seen.bpf || !attached, w.seen.leads || !intact
	return bad || !attached || !intact
}

// checkBPF reports whether the programs are attached and pinned, and whether
// their table is as we have left it.
func (h *Host) checkBPF() (attached, intact bool) {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p := h.steering
	if p == nil {
		return true, true
	}
	return p.Attached() && p.Pinned(), len(p.Table().Hurt()) == 0
}

// RenewAddresses tells the eBPF programs the host's own addresses.
func (h *Host) RenewAddresses() error {
	defer h.Release()
	h.bpf.Lock()
	defer h.bpf.Unlock()
	if h.steering == nil {
		return nil
	}
	local, err := h.LocalAddrs()
	if err != nil {
		return err
	}
	return h.steering.SetAddresses(local)
}

// ObservePart returns what the kernel holds of some objects of a plan. With any
// of the nft table comes all that is in it.
func (h *Host) ObservePart(part plan.Plan) (plan.Plan, error) {
	h.Release() // what was seen before may be another by now
	defer h.Release()
	h.bpf.Lock()
	defer h.bpf.Unlock()
	var have plan.Plan
	leads, table := map[string]bool{}, false
	for _, o := range part {
		switch o.(type) {
		case plan.Table, plan.Mapping, plan.Member:
			table = true
			continue
		case plan.Lead, plan.Grant:
			leads[o.Key()] = true
			continue
		}
		found, err := h.read(o)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", o.Key(), err)
		}
		if found != nil {
			have = append(have, found)
		}
	}
	if len(leads) > 0 {
		all, err := h.readLeads()
		if err != nil {
			return nil, fmt.Errorf("read the eBPF table: %w", err)
		}
		for _, o := range all {
			if leads[o.Key()] {
				have = append(have, o)
			}
		}
	}
	if !table {
		return have, nil
	}
	rules, err := h.readTable()
	return append(have, rules...), err
}

// onlyFixedNeighbors joins the messages about neighbour and forwarding entries,
// and has the kernel drop those about entries that are learnt, of which a busy
// host has no end: what passes is that one goes, and that one is set.
func (s *eventSocket) onlyFixedNeighbors() error {
	// struct nlmsghdr is 16 bytes, and then struct ndmsg. A filter loads in
	// network byte order.
	const kindAt, stateAt = 4, 16 + 8
	kind := uint32(binary.BigEndian.Uint16(native.AppendUint16(nil, unix.RTM_DELNEIGH)))
	low := stateAt + uint32(native.AppendUint16(nil, 1)[1]) // where the state's low byte is
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: kindAt, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: kind, SkipTrue: 2},
		bpf.LoadAbsolute{Off: low, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.NUD_PERMANENT | unix.NUD_NOARP, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
		if err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.RTNLGRP_NEIGH)
		}
	})
	if failed != nil {
		return failed
	}
	return os.NewSyscallError("filter messages about neighbours", err)
}
