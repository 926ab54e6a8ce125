// Package vm runs commands and this module's tests on other kernels than the
// host's: Debian's kernel and that of its backports, unpacked and not installed,
// in an emulated machine that lives as long as one command. It measures nothing,
// because an emulator's clock is not usable for that.
//
// # Theory of operation
//
// The machine has no disk, and no network but unconnected cards. Everything that
// it needs is in its initramfs, and all of its output goes over a serial line.
//
//	host                              guest
//	go build, go test -c, ldd ─cpio─► the kernel unpacks it and starts ./guest,
//	                                  which mounts, loads the modules, brings
//	                                  lo up and runs the command
//	verdict ◄───────serial line────── the command's output, then its exit
//	                                  status; then the machine powers off
//
// A machine that ends without having said an exit status has failed, however
// it ended.
//
// The guest's clock counts instructions, one a nanosecond, and leaps to the
// next timer when the guest has nothing to do. So a test's patience is as
// long on a busy host as on an idle one, and waiting costs nothing. The
// emulator can do that for one CPU only: what goes wrong between two CPUs is
// not seen here.
//
// Limits: amd64 only; and tests start in the guest's root folder, so they
// find no testdata beside them.
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

// OrderFile is the file of the initramfs that holds the Order as JSON.
const OrderFile = "/order.json"

// Order is what the guest is told to do.
type Order struct {
	// Modules are files to load, in this order.
	Modules []string
	Command []string
}

// StatusLine begins the guest's last line; the command's exit status ends it.
const StatusLine = "guest: exit status "

// Machine is an emulated machine for one command.
type Machine struct {
	Kernel Kernel
	// Modules are the names of kernel modules to load; what they depend on
	// is loaded before them.
	Modules []string
	// Tools are commands of the host that are copied to the guest.
	Tools []string
	// Cards are the machine's network cards on its PCI bus, the first in slot
	// FirstCard. Each is the emulator's name of a model, e.g. virtio-net-pci.
	// They are not connected.
	Cards []string
}

// FirstCard is the PCI slot of the first network card.
const FirstCard = 0x10

// cards are the emulator's options for the machine's network cards.
func (m Machine) cards() []string {
	var args []string
	for i, model := range m.Cards {
		args = append(args, "-netdev", fmt.Sprintf("hubport,id=wire%d,hubid=%d", i, i),
			"-device", fmt.Sprintf("%s,netdev=wire%d,addr=%#x,romfile=", model, i, FirstCard+i))
	}
	return args
}

// limit bounds a machine's life by the host's clock, and testLimit that of
// tests in it by the guest's, which goes slower while the guest is busy.
// Tests that hang say where; a machine that hangs just ends.
const (
	limit     = 20 * time.Minute
	testLimit = 5 * time.Minute
)

// Run boots the machine, runs the command and returns all that the guest
// said. A command that exits with another status than 0 is an error.
func (m Machine) Run(ctx context.Context, command ...string) (said string, err error) {
	return m.run(ctx, nil, command)
}

// Test builds the tests of the package and runs them in the machine, with
// flags of theirs. That one fails or is skipped, or that none runs, is an
// error.
func (m Machine) Test(ctx context.Context, pkg string, flags ...string) (said string, err error) {
	binary, err := build(ctx, "test", "-c", pkg)
	if err != nil {
		return "", err
	}
	const at = "/tests"
	command := append([]string{at, "-test.v", "-test.timeout=" + testLimit.String()}, flags...)
	said, err = m.run(ctx, map[string][]byte{at: binary}, command)
	return said, errors.Join(err, ran(said))
}

// ran judges the output of verbose tests beyond their exit status.
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

// boot runs the emulator until the machine powers off, and returns what came
// over its serial line.
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
	cmd := exec.Command("qemu-system-x86_64",
		// Newer CPUs' features take the emulator time, and no test wants them. QEMU 7.2
		// corrupts the flags at cmpxchg16b, on which Linux 6.12 panics at random.
		"-accel", "tcg", "-icount", "shift=0,sleep=off", "-rtc", "clock=vm", "-cpu", "qemu64,-cx16", "-m", "2G",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", m.Kernel.Image, "-initrd", file,
		// A panic reboots at once, which ends the emulator. The emulated CPU
		// has none of the faults that the mitigations are for.
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off")
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

// status reads the exit status from the guest's last line, after which only
// the kernel speaks.
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
