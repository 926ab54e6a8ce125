package e2e_test

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hideNftables is the environment variable that makes this test's binary run a
// command as on a kernel without nftables.
const hideNftables = "FAIRLEAD_E2E_NO_NFTABLES"

// runWithoutNftables runs a command whose netfilter sockets the kernel refuses as a kernel without
// nftables does.
func runWithoutNftables(args []string) int {
	runtime.LockOSThread() // a filter applies to the thread, and execve keeps it
	if err := refuseNetfilter(); err != nil {
		fmt.Fprintln(os.Stderr, "install seccomp filter:", err)
		return 1
	}
	if err := os.Unsetenv(hideNftables); err != nil {
		return 1
	}
	err := syscall.Exec(args[0], args, os.Environ())
	fmt.Fprintln(os.Stderr, "run:", err)
	return 1
}

// refuseNetfilter makes socket(AF_NETLINK, …, NETLINK_NETFILTER) fail. The
// offsets are those of struct seccomp_data on little-endian machines.
func refuseNetfilter() error {
	const number, family, protocol = 0, 16, 32
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	end := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	filter := []unix.SockFilter{
		load(number), unless(unix.SYS_SOCKET, 5),
		load(family), unless(unix.AF_NETLINK, 3),
		load(protocol), unless(unix.NETLINK_NETFILTER, 1),
		end(unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)),
		end(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
