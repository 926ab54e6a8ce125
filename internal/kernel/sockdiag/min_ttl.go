package sockdiag

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// MinTTL returns the smallest TTL of IPv4 packets, or the smallest hop limit of IPv6
// packets, that the listener accepts (RFC 5082); 0 if it accepts any or if that cannot be
// read. The kernel shows the option only to a process that has the socket, so MinTTL
// duplicates it for a moment, which needs root and Linux 5.6.
func MinTTL(l Listener, v4 bool) int {
	pid, err := unix.PidfdOpen(l.Process.PID, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(pid)
	level, option := unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT
	if v4 {
		level, option = unix.IPPROTO_IP, unix.IP_MINTTL
	}
	for _, number := range descriptorsOf(l) {
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

// descriptorsOf returns the numbers of the file descriptors with which the listener's
// process has the socket.
func descriptorsOf(l Listener) (numbers []int) {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", l.Process.PID))
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || target != fmt.Sprintf("socket:[%d]", l.Inode) {
			continue
		}
		if n, err := strconv.Atoi(filepath.Base(fd)); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
