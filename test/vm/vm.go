// Package vm runs commands and this module's tests on other kernels than the host's: Debian's
// kernel and that of its backports, unpacked and not installed, in an emulated machine that exists
// for one command. Its clock is not usable to measure time: it counts instructions, which TestInstructions compares.
//
// # Theory of operation
//
// The machine has no disk, and no network except unconnected cards. Everything that it needs is in
// its initramfs, and all of its output is sent over a serial line.
//
//	host                              guest
//	go build, go test -c, ldd ─cpio─► the kernel unpacks it and starts ./guest,
//	                                  which mounts, loads the modules, brings
//	                                  lo up and runs the command
//	verdict ◄───────serial line────── the command's output, then its exit
//	                                  status; then the machine powers off
//
// A machine that ends without reporting an exit status has failed, however it ended.
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
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
	Command []string
}

// StatusLine begins the guest's last line, which ends with the command's exit status.
const StatusLine = "guest: exit status "

// Machine is an emulated machine for one command.
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
	limit     = 45 * time.Minute
	testLimit = 5 * time.Minute
)

// Run boots the machine, runs the command and returns the guest's output. It returns an error if
// the command's exit status is not 0.
func (m Machine) Run(ctx context.Context, command ...string) (said string, err error) {
	return m.run(ctx, nil, command)
}

// Test builds the tests of the package and runs them in the machine, with the given test flags. It
// returns an error if a test fails or is skipped, or if none runs.
func (m Machine) Test(ctx context.Context, pkg string, flags ...string) (said string, err error) {
	binary, err := m.Kernel.arch.build(ctx, "test", "-c", pkg)
	if err != nil {
		return "", err
	}
	const at = "/tests"
	command := append([]string{at, "-test.v", "-test.timeout=" + testLimit.String()}, flags...)
	said, err = m.run(ctx, map[string][]byte{at: binary}, command)
	return said, errors.Join(err, ran(said))
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

func (m Machine) run(ctx context.Context, extra map[string][]byte, command []string) (string, error) {
	files, err := m.contents(ctx, command)
	if err != nil {
		return "", fmt.Errorf("pack initramfs: %w", err)
	}
	maps.Copy(files, extra)
	said, err := m.boot(ctx, cpio(files))
	if err != nil {
		return said, fmt.Errorf("run machine: %w", err)
	}
	return said, status(said)
}

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
	// The guest's clock counts instructions, so a low priority changes no result. Tests of other
	// packages are timed by the host's clock, and go first.
	a := m.Kernel.arch
	cmd := exec.Command("nice", append([]string{"-n", "5", a.emulator}, a.cpu...)...)
	cmd.Args = append(cmd.Args, "-accel", "tcg", "-icount", "shift=0,sleep=off", "-rtc", "clock=vm", "-m", "2G",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", m.Kernel.Image, "-initrd", file,
		// After a panic the machine reboots at once, which ends the emulator. The emulated CPU
		// needs no mitigations. The self-tests of ciphers take a third of the boot.
		"-append", "console="+a.console+" quiet panic=-1 mitigations=off cryptomgr.notests "+a.append)
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

// status reads the exit status from the guest's last line. Only kernel messages follow it.
func status(said string) error {
	at := strings.LastIndex(said, "\n"+StatusLine)
	if at < 0 {
		return errors.New("the guest ended before its command did")
	}
	code, _, _ := strings.Cut(said[at+1+len(StatusLine):], "\n")
	if code != "0" {
		return fmt.Errorf("the guest's command failed with status %s", code)
	}
	return nil
}
