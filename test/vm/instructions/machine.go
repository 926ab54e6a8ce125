package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seed tells the machine's kernel that its random numbers are seeded. Until then each one takes thousands of
// instructions, and nothing in the machine would seed them for some seconds.
func seed() error {
	f, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("seed random numbers: %w", err)
	}
	defer f.Close()
	// struct rand_pool_info with the bits of entropy, and the size of the buffer.
	info := struct {
		entropy, size int32
		buffer        [32]byte
	}{entropy: 256, size: 32}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info)))
	if errno != 0 {
		return fmt.Errorf("seed random numbers: %w", errno)
	}
	return nil
}

// setPriority sets the scheduling policy and priority of this thread.
func setPriority(policy, priority uint32) error {
	attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
	return os.NewSyscallError("sched_setattr", unix.SchedSetAttr(0, attr, 0))
}
