// guest is the first process of a machine of package vm. It prepares the kernel for tests, runs the
// commands, reports their exit statuses and powers the machine off. It never runs on a host.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"fairlead/test/vm"

	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: run it only as the first process of a test machine: it powers the machine off")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Println("guest:", err)
	}
	// Wait until the serial line has sent all output.
	_ = unix.IoctlSetInt(int(os.Stdout.Fd()), unix.TCSBRK, 1)
	// If powering off fails, the end of the first process ends the machine with a panic.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// run prepares the kernel and runs the commands of the order.
func run() error {
	content, err := os.ReadFile(vm.OrderFile)
	if err != nil {
		return err
	}
	var do vm.Order
	if err := json.Unmarshal(content, &do); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if err := prepare(do.Modules); err != nil {
		return err
	}
	// Commands have the same paths as on the host.
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	// Memory is plenty and the CPU is slow: Go collects garbage at five times the live heap instead of twice.
	if err := os.Setenv("GOGC", "400"); err != nil {
		return err
	}
	for i, command := range do.Commands {
		busyBefore := busy()
		status := execute(command)
		endOthers()
		fmt.Printf("guest: command %d took %.2f s of CPU time\n", i, busy()-busyBefore)
		fmt.Printf("\n"+vm.StatusLine+"\n", do.Mark, i, status)
	}
	return nil
}

// busy returns for how many seconds the CPU has not been idle.
func busy() float64 {
	var up, idle float64
	if content, err := os.ReadFile("/proc/uptime"); err == nil {
		_, _ = fmt.Sscan(string(content), &up, &idle)
	}
	return up - idle
}

// endOthers ends what a command has started and left, such as the processes of a test that hung: the next command
// would meet them, and its output would have theirs.
func endOthers() {
	_ = unix.Kill(-1, unix.SIGKILL) // all but this process; an error says that there is none
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && err != unix.EINTR {
			return // no child is left
		}
	}
}

// execute returns the exit status of a command, or 1 if the command could not run.
func execute(command []string) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Printf("guest: run %s: %v\n", command[0], err)
		return 1
	}
	return 0
}

// mounts lists the mounts of a running system, parents first.
var mounts = []struct{ kind, at string }{
	{"proc", "/proc"},
	{"sysfs", "/sys"},
	{"devtmpfs", "/dev"},
	{"tmpfs", "/dev/shm"},
	{"tmpfs", "/tmp"},
	{"tmpfs", "/run"},
	{"cgroup2", "/sys/fs/cgroup"},
	{"bpf", "/sys/fs/bpf"},
}

func prepare(modules []string) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for _, file := range modules {
		if err := load(file); err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	return linkUp("lo")
}

func load(module string) error {
	f, err := os.Open(module)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

func linkUp(name string) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	defer unix.Close(s)
	link, err := unix.NewIfreq(name)
	if err == nil {
		link.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, link)
	}
	if err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}
