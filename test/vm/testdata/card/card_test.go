// Package card_test runs in a guest, started by the tests of package vm. It moves PCI network cards
// into sandboxes. Only this test runs in the guest, so the first namespace is the host's.
package card_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/store"
	"fairlead/test/vm"
)

// removalTimeout limits the time that the kernel may need to remove a namespace.
const removalTimeout = 20 * time.Second

// address is the PCI address of the first card.
var address = fmt.Sprintf("0000:00:%02x.0", vm.FirstCard)

func sh(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// name returns the current name of the first card on the host; empty if the card is not in the
// host's namespace.
func name(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/sys/bus/pci/devices/" + address + "/virtio*/net/*")
	if err != nil || len(found) != 1 {
		return ""
	}
	return filepath.Base(found[0])
}

// describe returns the host's links and addresses, without what changes by itself: carrier states
// and duplicate address detection.
func describe(t *testing.T) string {
	t.Helper()
	return sh(t,
		"ip -o link | sed 's/NO-CARRIER,//; s/,LOWER_UP//; s/ state [A-Z]*//'; ip -o addr | grep -v fe80; true")
}

// container starts a process that is the only one in its sandbox.
func container(t *testing.T) (path string, kill func()) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid), func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// daemon starts an engine. stop ends it as a kill does.
func daemon(t *testing.T, kept engine.Store) (e *engine.Engine, stop func()) {
	t.Helper()
	h, err := kernel.Open("", kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(engine.Config{Kernel: h, Flows: h, Inspector: h, Store: kept}), func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

func withDevice(sandbox, device string) model.State {
	return model.State{Networks: []model.Network{{Name: "lan", Driver: model.DriverDevice, Parent: device}},
		Endpoints: []model.Endpoint{{Name: "web", Network: "lan", Sandbox: sandbox, Interface: "lan0",
			Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.2/24"),
				netip.MustParsePrefix("2001:db8:2::2/64")}}}}
}

// cameBack waits until the kernel has returned the card to the host.
func cameBack(t *testing.T) string {
	t.Helper()
	for deadline := time.Now().Add(removalTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if now := name(t); now != "" {
			return now
		}
	}
	t.Fatalf("the kernel has not returned the card:\n%s", sh(t, "ip -d link"))
	return ""
}

// TestCardReturns moves a card into a sandbox, by its PCI address and by its name, and ends the
// sandbox. Either the engine is watching, or it was killed before. Then a new engine restores the
// card: with its record, without a record, or while another link of the host has the card's name in
// the sandbox.
func TestCardReturns(t *testing.T) {
	own := name(t)
	if own == "" {
		t.Fatalf("the guest has no card at %s:\n%s", address, sh(t, "ip link; ls -l /sys/class/net"))
	}
	configure := func() {
		sh(t, "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf."+own+
			".accept_dad=0;"+
			" ip link set "+own+" mtu 1400 alias uplink up; ip addr add 192.0.2.9/24 brd + dev "+own+
			"; ip addr add 2001:db8:9::9/64 dev "+own)
	}
	configure()
	before := describe(t)
	for _, device := range []string{address, own} {
		for _, how := range []string{"the same engine", "a new engine", "an engine without a record",
			"its name taken"} {
			t.Run(device+" "+how, func(t *testing.T) {
				sandbox, kill := container(t)
				defer kill()
				kept := &store.Memory{}
				e, stop := daemon(t, kept)
				for range 2 {
					if _, err := e.Set(t.Context(), withDevice(sandbox, device)); err != nil {
						t.Fatal(err)
					}
					if ops, err := e.Verify(t.Context()); err != nil || len(ops) != 0 {
						t.Errorf("the state differs: %v %v", ops, err)
					}
				}
				inside := sh(t, "nsenter --net="+sandbox+" ip -o addr")
				if name(t) != "" || !strings.Contains(inside, "lan0    inet 203.0.113.2/24") {
					t.Errorf("the sandbox does not have the device:\n%s", inside)
				}
				if how == "its name taken" {
					sh(t, "ip link add lan0 type bridge")
				}
				if how == "the same engine" {
					kill()
				} else {
					stop()
					kill()
					if now, want := cameBack(t), map[bool]string{true: "dev",
						false: "lan0"}[how == "its name taken"]; !strings.HasPrefix(now, want) {
						t.Errorf("it came back as %s, want %s", now, want)
					}
					if how == "an engine without a record" {
						kept = &store.Memory{}
					}
					e, stop = daemon(t, kept)
				}
				if _, err := e.Set(t.Context(), model.State{}); err != nil {
					t.Error(err)
				}
				stop()
				if how == "its name taken" {
					sh(t, "ip link del lan0")
				}
				if how == "an engine without a record" { // it takes only the name from the alias
					if now := describe(t); name(t) != own || strings.Contains(now, "192.0.2.9") {
						t.Errorf("without a record the engine restored more than the name %s:\n%s", own, now)
					}
					configure()
				}
				if after := describe(t); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	}
}

// TestUnknownCardIsRefused requests cards that the guest does not have.
func TestUnknownCardIsRefused(t *testing.T) {
	e, stop := daemon(t, &store.Memory{})
	defer stop()
	for device, want := range map[string]string{
		"0000:00:1f.7": "no network device of this host has that PCI address",
		"0000:00:00.0": "no network device of this host has that PCI address",
	} {
		if _, err := e.Set(t.Context(), withDevice(fmt.Sprintf("/proc/%d/ns/net", os.Getpid()), device)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", device, err)
		}
	}
}
