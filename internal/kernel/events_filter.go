package kernel

import (
	"encoding/binary"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// onlyFixedNeighbors subscribes to messages about neighbour and forwarding entries.
// A socket filter drops those about learnt entries, of which a busy host has very
// many: only deletions and permanent entries pass.
func (s *eventSocket) onlyFixedNeighbors() error {
	// struct nlmsghdr has 16 bytes and is followed by struct ndmsg. The filter
	// loads values in network byte order.
	const kindAt, stateAt = 4, 16 + 8
	kind := uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.RTM_DELNEIGH)))
	low := stateAt + uint32(binary.NativeEndian.AppendUint16(nil, 1)[1]) // offset of the state's low byte
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
