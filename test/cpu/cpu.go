// Package cpu binds a thread to one CPU, for tests of per-CPU maps and for packets that must arrive
// in order. It does not choose the CPU.
package cpu

import "golang.org/x/sys/unix"

// Stay binds the calling thread, to which its goroutine must be locked, to the
// first CPU that it may use.
func Stay() error {
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if may.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	return unix.SchedSetaffinity(0, &one)
}
