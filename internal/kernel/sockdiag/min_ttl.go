package sockdiag

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Descriptors are the numbers of a process's file descriptors, by the inodes of its sockets.
type Descriptors map[uint32][]int

// DescriptorsOf reads the file descriptors of a process. It returns none if the process has ended
// or cannot be seen.
func DescriptorsOf(pid int) Descriptors {
	found := Descriptors{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		var inode uint32
		target, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		if _, err := fmt.Sscanf(target, "socket:[%d]", &inode); err != nil {
			continue
		}
		if n, err := strconv.Atoi(filepath.Base(fd)); err == nil {
			found[inode] = append(found[inode], n)
		}
	}
	return found
}

// MinTTL returns the smallest TTL of IPv4 packets, or the smallest hop limit of IPv6
// packets, that the listener of the process accepts (RFC 5082); 0 if it accepts any or if that
// cannot be read. The kernel shows the option only to a process that has the socket, so MinTTL
// duplicates it for a moment, which needs root and Linux 5.6.
func (d Descriptors) MinTTL(l Listener, v4 bool) int {
	if len(d[l.Inode]) == 0 {
		return 0
	}
	pid, err := unix.PidfdOpen(l.Process.PID, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(pid)
	level, option := unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT
	if v4 {
		level, option = unix.IPPROTO_IP, unix.IP_MINTTL
	}
	for _, number := range d[l.Inode] {
		fd, err := unix.PidfdGetfd(pid, number, 0)
		if err != nil {
			continue
		}
		ttl, err := unix.GetsockoptInt(fd, level, option)
		unix.Close(fd)
		if err == nil {
			return ttl
		}
	}
	return 0
}
