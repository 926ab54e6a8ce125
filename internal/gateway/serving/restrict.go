package serving

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// restrict takes from a process that has the controlling process's user what its user id does
// not: it opens no unix socket, so not Docker's, and writes no file but temporary ones. The
// kernel may not support a restriction; then the process goes on without it.
func restrict() error {
	if err := refuseCalls(); err != nil && !unsupported(err) {
		return fmt.Errorf("refuse system calls: %w", err)
	}
	if err := refuseWrites(os.TempDir()); err != nil && !unsupported(err) {
		return fmt.Errorf("refuse to write files: %w", err)
	}
	return nil
}

// unsupported reports whether the kernel, or a filter of system calls, lacks a system call.
func unsupported(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.EPERM)
}

// architectures are those whose system calls the filter knows.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// refuseCalls makes socket(AF_UNIX, …), socketpair, io_uring_setup and truncate fail (seccomp(2)), on
// all threads: a datagram socket of a pair can send to any path, io_uring opens sockets too, and
// Landlock does not know truncate before Linux 6.2. The
// offsets are those of struct seccomp_data on little-endian machines. System calls of other
// architectures do not exist, and neither do those of x32.
func refuseCalls() error {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return nil
	}
	const number, architecture, family, x32 = 0, 4, 16, 0x40000000
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(test uint16, value uint32, then, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | test, K: value, Jt: then, Jf: otherwise}
	}
	end := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	filter := []unix.SockFilter{
		load(architecture), jump(unix.BPF_JEQ, arch, 0, 8),
		load(number), jump(unix.BPF_JGE, x32, 6, 0),
		jump(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, 5, 0), jump(unix.BPF_JEQ, unix.SYS_TRUNCATE, 6, 0),
		jump(unix.BPF_JEQ, unix.SYS_SOCKETPAIR, 5, 0), jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 3),
		load(family), jump(unix.BPF_JEQ, unix.AF_UNIX, 2, 1),
		end(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)),
		end(unix.SECCOMP_RET_ALLOW),
		end(unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// prctl, because the daemon's unit does not allow seccomp(2).
	err := everywhere(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(&program)
	return err
}

// writing are the ways to change files that each version of Landlock knows (landlock(7)).
var writing = []uint64{
	1: unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM,
	2: unix.LANDLOCK_ACCESS_FS_REFER,
	3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
}

// refuseWrites makes all changes of files fail but those below the directory (landlock(7)), on
// all threads. Files that are open already can be written.
func refuseWrites(except string) error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return errno
	}
	rules := unix.LandlockRulesetAttr{}
	for at, access := range writing {
		if at <= int(version) {
			rules.Handled_access_fs |= access
		}
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)),
		unsafe.Sizeof(rules.Handled_access_fs), 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	if err := allowBelow(fd, except, rules.Handled_access_fs); err != nil {
		return err
	}
	return everywhere(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
}

// allowBelow adds to the rules that all is allowed below a directory, if it exists.
func allowBelow(rules uintptr, directory string, access uint64) error {
	at, err := unix.Open(directory, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(at)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(at)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// everywhere makes a system call on all threads.
func everywhere(trap, a1, a2, a3 uintptr) error {
	switch _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, a3, 0, 0, 0); errno {
	case 0:
		return nil
	case unix.ENOTSUP:
		return fmt.Errorf("%w by a program with cgo: build it with CGO_ENABLED=0, as make build does", errno)
	default:
		return errno
	}
}
