package watch

import (
	"encoding/binary"
	"errors"
	"os"

	"fairlead/internal/kernel/netns"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// eventBuffer is the size of the socket's receive buffer in bytes. It has room for
// thousands of messages, as on a host that takes over a thousand endpoints.
const eventBuffer = 16 << 20

// eventSocket is a netlink socket that receives events.
type eventSocket struct {
	file  *os.File
	parse func(namespace int, m message)
	buf   []byte
	oob   [64]byte
}

// open opens the socket in the calling thread's namespace.
func (s *eventSocket) open(family int, everywhere bool, groups ...int) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	s.file, s.buf = os.NewFile(uintptr(fd), "netlink"), make([]byte, 64<<10)
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer)
	}
	if err == nil && everywhere {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1)
	}
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g)
		}
	}
	if err != nil {
		return errors.Join(os.NewSyscallError("listen on netlink", err), s.file.Close())
	}
	return nil
}

// receive returns the messages of one datagram and the id of the namespace that
// they are about. It does not block.
func (s *eventSocket) receive() (messages []byte, namespace int, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return nil, netns.NoID, err
	}
	namespace = netns.NoID
	failed := raw.Control(func(fd uintptr) {
		var n, oobn int
		if n, oobn, _, _, err = unix.Recvmsg(int(fd), s.buf, s.oob[:], unix.MSG_DONTWAIT); err == nil {
			messages = s.buf[:n]
			namespace = namespaceOf(s.oob[:oobn])
		}
	})
	return messages, namespace, errors.Join(failed, err)
}

// namespaceOf returns the namespace id in a message's control data. Messages about
// the socket's own namespace have none; for these it returns netns.NoID.
func namespaceOf(oob []byte) int {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netns.NoID
	}
	for _, c := range controls {
		if c.Header.Level == unix.SOL_NETLINK && c.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(c.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(c.Data)))
		}
	}
	return netns.NoID
}

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
