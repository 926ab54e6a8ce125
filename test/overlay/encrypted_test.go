package overlay_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/fabric"
	"fairlead/test/features"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// keyFile writes a secret to a file.
func keyFile(t testing.TB, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "net.key")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const secret = "the hosts of this overlay share!" // 32 bytes

func encrypted(f *fabric.Fabric, v4 bool, file string) model.Network {
	n := network(f, v4)
	n.Overlay.Encrypt, n.Overlay.KeyFile = true, file
	return n
}

// TestEncrypted needs WireGuard. On a kernel without it, an encrypted overlay must be refused and
// never be built in plain text. test/vm has a kernel with WireGuard.
func TestEncrypted(t *testing.T) {
	facts := features.Facts(t)
	if missing, lacks := facts.Missing[plan.FeatureWireGuard]; lacks {
		f := fabric.New(t, fabric.Options{Hosts: 2})
		h := f.Hosts[0]
		before := place.Snapshot(t, h.Do)
		if _, err := h.Engine.Set(t.Context(), state(h, encrypted(f, true, "/no/key"), "box1")); err == nil ||
			!strings.Contains(err.Error(), "encrypt: "+missing) {
			t.Errorf("the error is %v; want %q", err, missing)
		}
		unchanged(t, h, before)
		return
	}
	for name, v4 := range families {
		t.Run(name, func(t *testing.T) { crosses(t, v4) })
	}
	t.Run("plain text is dropped", plainText)
	t.Run("repair", healsEncrypted)
	t.Run("key files", keyFiles)
	t.Run("another secret", anotherSecret)
	t.Run("keys of hosts", keysOfHosts)
}

// keysOfHosts gives each host a key of its own, and replaces them while sandboxes exchange messages, of which
// none is lost. A host whose key the others do not know gets nothing.
func keysOfHosts(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 3})
	var files []string
	n := network(f, true)
	n.Overlay.Encrypt, n.Overlay.ByRange = true, true
	n.Subnets = n.Subnets[:1]
	newKey := func(i int) {
		private, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		files[i] = keyFile(t, private.String()+"\n")
		n.Overlay.Peers[i].PublicKey = private.PublicKey().String()
	}
	for i := range f.Hosts {
		n.Overlay.Peers[i].Ranges = n.Overlay.Peers[i].Ranges[:1]
		files = append(files, "")
		newKey(i)
	}
	seen := place.Watch(t, f.Switches[0].Do, "box")
	apply := func(host int, peers ...int) model.State {
		own := n
		own.Overlay.KeyFile, own.Overlay.Peers = files[host], nil
		for _, i := range peers {
			own.Overlay.Peers = append(own.Overlay.Peers, n.Overlay.Peers[i])
		}
		return set(t, f.Hosts[host], state(f.Hosts[host], own, box(host)))
	}
	from := apply(0, 0, 1).Endpoints[0].Addresses[0]
	to := apply(1, 0, 1).Endpoints[0].Addresses[0]
	apply(2, 0, 1, 2)
	serve(t, f.Hosts[1].In(box(1)), box(1))
	answers := func(what string) {
		t.Helper()
		for end := time.Now().Add(3 * place.Timeout); ; {
			conn, err := dial(f.Hosts[0].In(box(0)), to, place.Timeout)
			if err == nil {
				conn.Close()
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	answers("with keys of their own")
	transfer(t, f.Hosts[0].In(box(0)), to, 64<<10)
	if conn, err := dial(f.Hosts[2].In(box(2)), to, 2*time.Second); err == nil {
		conn.Close()
		t.Error("a host without a known key reaches the others")
	}
	flow := exchange(t, f.Hosts[0].In(box(0)), f.Hosts[1].In(box(1)), [2]netip.Addr{from, to})
	for _, host := range []int{1, 0, 1} {
		flow.goesOn(t)
		newKey(host)
		apply(host, 0, 1)
		apply(1-host, 0, 1)
		flow.goesOn(t)
		answers("with another key of one host")
	}
	sent, lost := flow.end()
	if t.Logf("%d messages were sent, and %d lost", sent, lost); lost > 0 {
		t.Errorf("%d of %d messages were lost while keys were replaced", lost, sent)
	}
	undrifted(t, f)
	if seen.Plain.Load() > 0 || seen.Tunnel.Load() > 0 || seen.WireGuard.Load() < 50 {
		t.Errorf("the wire carried %d packets in plain text, %d of VXLAN, %d of WireGuard", seen.Plain.Load(),
			seen.Tunnel.Load(), seen.WireGuard.Load())
	}
}

// crosses sends data through an encrypted overlay, and checks the packets on the wire.
func crosses(t *testing.T, v4 bool) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	before := []string{place.Snapshot(t, f.Hosts[0].Do), place.Snapshot(t, f.Hosts[1].Do)}
	for _, h := range f.Hosts {
		sh(t, h.Do, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1")
	}
	n := encrypted(f, v4, keyFile(t, base64.StdEncoding.EncodeToString([]byte(secret))+"\n"))
	n.Subnets = n.Subnets[:1]
	for i := range n.Overlay.Peers {
		n.Overlay.Peers[i].Ranges = n.Overlay.Peers[i].Ranges[:1]
	}
	seen := place.Watch(t, f.Switches[0].Do, "box2")
	addrs := everywhere(t, f, n)
	reach(t, f, addrs)
	know(&n, addrs)
	everywhere(t, f, n)
	reach(t, f, addrs)
	for _, a := range addrs[1] {
		transfer(t, f.Hosts[0].In("box1"), a, 256<<10) // few enough for an emulator
	}
	for _, h := range f.Hosts {
		noTrack(t, h, model.PortWireGuard)
		noTrack(t, h, model.PortVXLAN)
	}
	want := map[bool]int{true: 1500 - 60 - 70, false: 1500 - 80 - 70}[v4]
	if got := sh(t, f.Hosts[0].In("box1"), "ip -o link show eth0"); !strings.Contains(got,
		fmt.Sprintf(" mtu %d ", want)) {
		t.Errorf("want an MTU of %d: %s", want, got)
	}
	if seen.Plain.Load() > 0 || seen.Tunnel.Load() > 0 || seen.WireGuard.Load() < 200 {
		t.Errorf("the wire carried %d packets in plain text, %d of VXLAN, %d of WireGuard", seen.Plain.Load(),
			seen.Tunnel.Load(), seen.WireGuard.Load())
	}
	undrifted(t, f)
	for i, h := range f.Hosts {
		unchanged(t, h, before[i])
	}
}

// TestWatchDetectsPlainText sends data in plain text and checks that Watch detects it.
func TestWatchDetectsPlainText(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	seen := place.Watch(t, f.Switches[0].Do, "box2")
	reach(t, f, everywhere(t, f, network(f, true)))
	for end := time.Now().Add(place.Timeout); seen.Plain.Load() == 0 || seen.Tunnel.Load() == 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("the wire carried %d packets in plain text, %d of VXLAN", seen.Plain.Load(), seen.Tunnel.Load())
		}
	}
}

// plainText sends VXLAN packets to a host of an encrypted overlay, from a third host that has the
// VNI but not the key. It sends to the host's underlay address and to its address inside the
// WireGuard tunnel.
func plainText(t *testing.T) {
	for _, secured := range []bool{false, true} {
		f := fabric.New(t, fabric.Options{Hosts: 3})
		h, intruder := f.Hosts[0], f.Hosts[2]
		n := network(f, false)
		if secured {
			n = encrypted(f, false, keyFile(t, secret))
		}
		n.Overlay.Peers = n.Overlay.Peers[:2]
		full := set(t, h, state(h, n, "box1"))
		serve(t, h.In("box1"), "box1")
		to := full.Endpoints[0].Addresses[0]
		targets := []string{h.Address(0, false).String()}
		if secured {
			inside, _, _ := strings.Cut(strings.Fields(sh(t, h.Do, "ip -o -6 addr show dev fw-net"))[3], "/")
			card := strings.Fields(sh(t, h.Do, "ip -o -br link show under0"))[2]
			sh(t, intruder.Do,
				fmt.Sprintf("ip addr add fe80::bad/64 dev under0 nodad; ip neigh replace %s lladdr %s dev under0",
					inside, card))
			targets = append(targets, inside+" local fe80::bad")
		}
		for _, target := range targets {
			sh(t, intruder.Do,
				fmt.Sprintf("ip link del evil 2>/dev/null; ip -6 link add evil type vxlan id 42 dstport 4789 remote %s dev under0 && ip addr add 10.9.0.200/24 dev evil && ip link set evil up", target))
			conn, err := dial(intruder.Do, to, 2*time.Second)
			if err == nil {
				conn.Close()
			}
			if secured == (err == nil) {
				t.Errorf("encrypted %v: the intruder's connection via %s: %v", secured, target, err)
			}
		}
	}
}

func healsEncrypted(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	file := keyFile(t, secret)
	n := encrypted(f, true, file)
	addrs := everywhere(t, f, n)
	h := f.Hosts[0]
	for name, damage := range map[string]func(){
		"link deleted":    func() { sh(t, h.Do, "ip link del fw-net") },
		"link down":       func() { sh(t, h.Do, "ip link set fw-net down") },
		"address deleted": func() { sh(t, h.Do, "ip addr flush dev fw-net") },
		"MTU changed":     func() { sh(t, h.Do, "ip link set fw-net mtu 1300") },
		"tunnel deleted":  func() { sh(t, h.Do, "ip link del fx-net") },
		"another secret": func() {
			if err := os.WriteFile(file, []byte(strings.ToUpper(secret)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Hosts[1].Engine.Heal(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"a peer removed and added": func() {
			alone := n
			alone.Overlay.Peers = n.Overlay.Peers[:1]
			set(t, h, state(h, alone, "box1"))
			set(t, h, state(h, n, "box1"))
		},
	} {
		damage()
		if _, err := h.Engine.Heal(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		undrifted(t, f)
		handshake(t, f)
		reach(t, f, addrs)
		if t.Failed() {
			t.Fatalf("after: %s", name)
		}
	}
}

// handshake waits until the hosts have agreed on keys: WireGuard retries an unanswered handshake
// after 5 seconds (REKEY_TIMEOUT).
func handshake(t *testing.T, f *fabric.Fabric) {
	t.Helper()
	peer := network(f, true).Overlay.Peers[1].Own(model.Network{Subnets: subnets})[0]
	for deadline := time.Now().Add(3 * place.Timeout); time.Now().Before(deadline); {
		conn, err := dial(f.Hosts[0].Do, peer, place.Timeout)
		if err == nil {
			conn.Close()
		}
		if err == nil || errors.Is(err, unix.ECONNREFUSED) {
			return // any answer, even a refusal, has passed the tunnel
		}
	}
	t.Error("the hosts do not reach each other")
}

func keyFiles(t *testing.T) {
	open := keyFile(t, secret)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"/no/such.key":          "read key file /no/such.key: open /no/such.key: no such file or directory: create it with `wg genkey`",
		open:                    "mode 0644 allows access for users other than the owner: chmod 600 " + open,
		keyFile(t, "too short"): "the secret is not 32 bytes long, neither raw nor in base64",
	} {
		f := fabric.New(t, fabric.Options{Hosts: 2})
		h := f.Hosts[0]
		before := place.Snapshot(t, h.Do)
		if _, err := h.Engine.Set(t.Context(), state(h, encrypted(f, true, file), "box1")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v; want %q", err, want)
		}
		unchanged(t, h, before)
	}
	f := fabric.New(t, fabric.Options{Hosts: 2})
	h := f.Hosts[0]
	take(t, h.Do, "0.0.0.0:51820")
	if _, err := h.Engine.Set(t.Context(), state(h, encrypted(f, true, keyFile(t, secret)), "box1")); err == nil ||
		!strings.Contains(err.Error(), "UDP port 51820 is in use by another program") {
		t.Errorf("the error is %v", err)
	}
}

// anotherSecret configures different key files on two hosts.
func anotherSecret(t *testing.T) {
	f := fabric.New(t, fabric.Options{Hosts: 2})
	var last model.State
	for i, secret := range []string{secret, strings.ToUpper(secret)} {
		last = set(t, f.Hosts[i], state(f.Hosts[i], encrypted(f, true, keyFile(t, secret)), box(i)))
	}
	serve(t, f.Hosts[1].In("box2"), "box2")
	if conn, err := dial(f.Hosts[0].In("box1"), last.Endpoints[0].Addresses[0], 2*time.Second); err == nil {
		conn.Close()
		t.Error("a host with another secret is reachable")
	}
}
