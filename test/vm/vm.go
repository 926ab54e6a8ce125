// Package vm runs commands and this module's tests on other kernels than the host's: Debian's
// kernel and that of its backports, unpacked and not installed, in an emulated machine that exists
// for some tasks. Its clock is not usable to measure time: it counts instructions, which TestInstructions compares.
//
// # Theory of operation
//
// The machine has no disk, and no network except unconnected cards. Everything that it needs is in
// its initramfs, and all of its output is sent over a serial line.
//
//	host                              guest
//	go build, go test -c, ldd ─cpio─► the kernel unpacks it and starts ./guest,
//	                                  which mounts, loads the modules, brings
//	                                  lo up and runs the commands in turn
//	verdict ◄───────serial line────── each command's output, then its exit
//	                                  status; then the machine powers off
//
// A command without a reported exit status has failed, however the machine ended. To boot a machine takes about as much
// CPU time as a short test, and so do the first programs that its kernel verifies: tests share machines if their
// kernels are the same.
//
// The guest's clock counts instructions, one per nanosecond, and jumps to the next timer when the
// guest is idle. A test's timeouts are therefore as long on a busy host as on an idle one, and
// waiting costs nothing. The emulator supports this for one CPU only, so races between CPUs are not
// found.
//
// Limits: the architectures are amd64, and arm64 with the tools of busybox. Tests start in the guest's root folder, so
// they have no testdata.
package vm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairlead/internal/child"
)

// OrderFile is the file of the initramfs that contains the Order as JSON.
const OrderFile = "/order.json"

// Order is the task of the guest.
type Order struct {
	// Modules lists files to load, in this order.
	Modules []string
	// Commands lists the commands to run, in this order, whether or not earlier ones fail.
	Commands [][]string
	// Mark is a random word, so that no command prints the line of a status.
	Mark string
}

// StatusLine is the format of the line that follows a command's output: the mark, the command's index, then its exit
// status.
const StatusLine = "guest %s: command %d: exit status %d"

// Machine is an emulated machine.
type Machine struct {
	Kernel Kernel
	// Modules lists the names of kernel modules to load. Their dependencies are loaded before them.
	Modules []string
	// Tools lists commands of the host that are copied to the guest.
	Tools []string
	// Cards are the machine's network cards on its PCI bus, the first in slot
	// FirstCard. Each is the emulator's name of a model, e.g. virtio-net-pci.
	// They are not connected.
	Cards []string
	// Hardened keeps the kernel's hardening, which hosts have. Only figures depend on it.
	Hardened bool
}

// FirstCard is the PCI slot of the first network card.
const FirstCard = 0x10

// cards returns the emulator's options for the machine's network cards.
func (m Machine) cards() []string {
	var args []string
	for i, model := range m.Cards {
		args = append(args, "-netdev", fmt.Sprintf("hubport,id=wire%d,hubid=%d", i, i),
			"-device", fmt.Sprintf("%s,netdev=wire%d,addr=%#x,romfile=", model, i, FirstCard+i))
	}
	return args
}

// limit is the time limit of a machine by the host's clock. testLimit is that of its tests by the
// guest's clock, which is slower while the guest is busy. A test that hangs is reported with its
// stack; a machine that hangs is only ended.
const (
	limit     = 70 * time.Minute
	testLimit = 5 * time.Minute
)

// Task is a command of a machine, or the tests of a package.
type Task struct {
	// Package is the package with the tests. If it is empty, Args is a command.
	Package string
	// Args are flags of the tests, or the command.
	Args []string
}

// Outcome is what a task has printed, and an error if its exit status is not 0 or unknown, if one of its tests was
// skipped, or if none ran.
type Outcome struct {
	Said string
	Err  error
}

// Run boots the machine and runs the tasks one after the other. It returns one outcome per task.
func (m Machine) Run(ctx context.Context, tasks ...Task) []Outcome {
	extra := map[string][]byte{}
	var commands [][]string
	for i, task := range tasks {
		command := task.Args
		if task.Package != "" {
			binary, err := m.Kernel.arch.build(ctx, "test", "-c", task.Package)
			if err != nil {
				return slices.Repeat([]Outcome{{Err: err}}, len(tasks))
			}
			at := fmt.Sprintf("/tests%d", i)
			extra[at] = binary
			command = slices.Concat([]string{at, "-test.v", "-test.timeout=" + testLimit.String()}, task.Args)
		}
		commands = append(commands, command)
	}
	outcomes := m.run(ctx, extra, commands)
	for i, task := range tasks {
		if task.Package != "" {
			outcomes[i].Err = errors.Join(outcomes[i].Err, ran(outcomes[i].Said))
		}
	}
	return outcomes
}

// ran checks the output of verbose tests, in addition to their exit status.
func ran(said string) error {
	if strings.Contains(said, "--- SKIP: ") {
		return errors.New("a test was skipped in the guest")
	}
	if !strings.Contains(said, "=== RUN ") {
		return errors.New("no test ran in the guest")
	}
	return nil
}

// run boots the machine with more files and runs the commands. It returns one outcome per command.
func (m Machine) run(ctx context.Context, extra map[string][]byte, commands [][]string) []Outcome {
	order := Order{Commands: commands, Mark: rand.Text()}
	files, err := m.contents(ctx, order)
	if err != nil {
		return slices.Repeat([]Outcome{{Err: fmt.Errorf("pack initramfs: %w", err)}}, len(commands))
	}
	maps.Copy(files, extra)
	said, err := m.boot(ctx, cpio(files))
	outcomes := divide(said, order.Mark, len(commands))
	if err != nil {
		for i := range outcomes {
			outcomes[i].Err = errors.Join(fmt.Errorf("run machine: %w", err), outcomes[i].Err)
		}
	}
	return outcomes
}

// unhardened are the kernel's parameters against its hardening, which takes a twelfth of the instructions: zeroed
// allocations, checked copies from and to processes, random stacks, addresses and free lists, and the security modules
// that only hosts with policies need.
const unhardened = "init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off nokaslr page_alloc.shuffle=0 " +
	"audit=0 lsm=yama"

// boot runs the emulator until the machine powers off, and returns the output of its serial line.
func (m Machine) boot(ctx context.Context, initramfs []byte) (string, error) {
	dir, err := os.MkdirTemp("", "fairlead-vm-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "initramfs")
	if err := os.WriteFile(file, initramfs, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var serial bytes.Buffer
	// The guest's clock counts instructions, so the lowest priority changes no result. Tests of other
	// packages are timed by the host's clock, and go first.
	a := m.Kernel.arch
	parameters := a.append
	if !m.Hardened {
		parameters += " " + unhardened
	}
	cmd := exec.Command("nice", append([]string{"-n", "19", a.emulator}, a.cpu...)...)
	cmd.Args = append(cmd.Args, "-accel", "tcg", "-icount", "shift=0,sleep=off", "-rtc", "clock=vm", "-m", "3G",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", m.Kernel.Image, "-initrd", file,
		// After a panic the machine reboots at once, which ends the emulator. The emulated CPU
		// needs no mitigations. The self-tests of ciphers take a third of the boot.
		"-append", "console="+a.console+" quiet panic=-1 mitigations=off cryptomgr.notests "+parameters)
	cmd.Args = append(cmd.Args, m.cards()...)
	cmd.Stdout, cmd.Stderr = &serial, &serial
	process, err := child.Start(ctx, cmd, child.Place{})
	if err == nil {
		err = process.Wait()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("the machine was stopped: %w", context.Cause(ctx))
	}
	return strings.ReplaceAll(serial.String(), "\r", ""), err
}

// divide divides the output of a guest into the outcomes of its commands. Only kernel messages follow the last status.
func divide(said, mark string, commands int) []Outcome {
	outcomes := make([]Outcome, commands)
	for i := commands - 1; i >= 0; i-- {
		line := "\n" + strings.TrimSuffix(fmt.Sprintf(StatusLine, mark, i, 0), "0")
		at := strings.LastIndex(said, line)
		if at < 0 {
			outcomes[i].Err = errors.New("the guest ended before its command did")
			continue
		}
		code, next, _ := strings.Cut(said[at+len(line):], "\n")
		if code != "0" {
			outcomes[i].Err = fmt.Errorf("the guest's command failed with status %s", code)
		}
		if i+1 < commands {
			outcomes[i+1].Said = next
		}
		said = said[:at]
	}
	outcomes[0].Said = said
	return outcomes
}
