package daemon_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/test/shell"
)

// card creates a device with an address on the host. devices returns the state of all
// links and addresses, without the carrier state, which changes by itself.
func (w *world) card() (devices func() string) {
	w.Helper()
	w.sh("set -e; ip link add nic address 52:54:00:12:34:56 mtu 1400 type veth peer name far; ip link set far up;" +
		" ip link set nic alias uplink up; ip addr add 192.0.2.9/24 brd + dev nic")
	return func() string {
		return w.sh("ip -o link | sed 's/^[0-9]*: //; s/@[^:]*//; s/NO-CARRIER,//; s/,LOWER_UP//; s/,M-DOWN//; s/ state [A-Z]*//; s/ link-netnsid [0-9]*//' | sort; ip -4 -o addr | sed 's/^[0-9]*: //'")
	}
}

func deviceRequest(sandbox string) api.AttachRequest {
	return api.AttachRequest{Device: "nic",
		Endpoint: model.Endpoint{Sandbox: sandbox, Interface: "lan0", Prefixes: prefixes("203.0.113.2/24")}}
}

// TestDeviceReturnsFromProcess kills the process that has the device: the device
// returns to the host.
func TestDeviceReturnsFromProcess(t *testing.T) {
	w := newWorld(t).start()
	devices := w.card()
	before := devices()
	b := w.watchedSandbox()
	if r := w.attach(deviceRequest(b.pid)); !r.Changed {
		t.Errorf("%+v", r)
	}
	if r := w.attach(deviceRequest(b.pid)); r.Changed {
		t.Errorf("attach again: %+v", r)
	}
	if out := b.sh(t, "ip -o addr"); !strings.Contains(out, "lan0    inet 203.0.113.2/24") {
		t.Errorf("the sandbox does not have the device:\n%s", out)
	}
	b.kill()
	w.until("the device is back", func() bool { return devices() == before })
	w.until("nothing waits for a process that does not come back", w.Empty)
	req := deviceRequest(w.watchedSandbox().pid)
	req.Keep = true
	if _, err := w.Attach(context.Background(), req); err == nil ||
		!strings.Contains(err.Error(), "a process does not come back") {
		t.Errorf("keep for a process: %v", err)
	}
}

// TestDeviceGetsFreeName moves the device to a sandbox that already has an eth0.
func TestDeviceGetsFreeName(t *testing.T) {
	w := newWorld(t).start()
	w.card()
	b := w.watchedSandbox()
	b.sh(t, "ip link add eth0 type bridge")
	req := deviceRequest(b.pid)
	req.Interface = ""
	for range 2 {
		if r := w.attach(req); r.Attachments[0].Interface != "eth1" {
			t.Errorf("its name in the sandbox is %s, want eth1", r.Attachments[0].Interface)
		}
	}
}

// TestDeviceFollowsSandbox attaches the device once, to a sandbox that ends and
// returns twice, the second time under another daemon.
func TestDeviceFollowsSandbox(t *testing.T) {
	w := newWorld(t).start()
	devices := w.card()
	before := devices()
	has := func() bool {
		ns, err := netns.Open(filepath.Join(w.finder.NetnsDir, "web"))
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		return strings.Contains(shell.Run(t, ns.Do, "ip -o addr"), "lan0    inet 203.0.113.2/24")
	}
	w.named("web")
	w.attach(deviceRequest("web"))
	for _, restart := range []bool{false, true} {
		if !has() {
			t.Error("the sandbox does not have the device")
		}
		w.unname("web")
		w.until("the device is back", func() bool { return devices() == before })
		if restart {
			w.stop()
			w.start()
		}
		w.named("web")
		w.until("the sandbox has it again", has)
	}
	if _, err := w.Detach(context.Background(), api.DetachRequest{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	if now := devices(); now != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, now)
	}
	if !w.Empty() {
		t.Error("the daemon still has attachments")
	}
}
