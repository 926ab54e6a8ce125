package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/place"
	"fairlead/test/process"
)

// TestAddressCommands adds a virtual address with a command, moves it to each host, and removes it. A client
// on the LAN reaches the host that the commands show, and none after the removal. A conflict does not move it.
func TestAddressCommands(t *testing.T) {
	v := &virtual{lan: newLAN(t), addr: netip.MustParseAddr("192.0.2.10")}
	v.client = v.connected(77)
	v.joined()
	for _, h := range v.hosts {
		place.Serve(t, h.ns.Do, ":80", func(c net.Conn) { fmt.Fprint(c, h.name) })
	}
	one, two := v.hosts[0], v.hosts[1]
	v.refused(one, "own address of node host2", "cluster", "address", "add", "192.0.2.2/24")
	one.Run("cluster", "address", "add", "192.0.2.10/24", "--hold", pauseless.String())
	holder := v.held()
	v.conflicts(holder)
	v.refused(two, "with other settings", "cluster", "address", "add", "192.0.2.10/24")
	for range 2 {
		for _, h := range v.hosts {
			if h == holder {
				continue
			}
			said := two.Run("cluster", "address", "move", "192.0.2.10", h.name)
			if !strings.Contains(said, h.name+" holds") {
				t.Errorf("move says %q", said)
			}
			if name := v.answered(place.Timeout); name != h.name {
				t.Errorf("after the move to %s, %q answers", h.name, name)
			}
			if left := v.left(holder); left != "" {
				t.Errorf("%s keeps the address:\n%s", holder.name, left)
			}
			holder = h
		}
	}
	v.until("a host shows the holder", func() bool {
		all := two.status().Addresses
		return len(all) == 1 && all[0].Holder == holder.name && all[0].Lease > 0
	})
	for _, h := range v.hosts {
		want := "fairlead_cluster_address_held{address=\"192.0.2.10\"} 0\n"
		if h == holder {
			want = strings.Replace(want, "} 0", "} 1", 1)
		}
		if metrics := scraped(t, h); !strings.Contains(metrics, want) ||
			!strings.Contains(metrics, "fairlead_cluster_nodes{state=\"alive\"} 3\n") {
			t.Errorf("%s has the metrics\n%s\nwant %s", h.name, metrics, want)
		}
	}
	if shown := two.Run("cluster", "address", "ls"); !strings.Contains(shown, holder.name) {
		t.Errorf("address ls shows\n%s", shown)
	}
	if events := one.Run("events"); !strings.Contains(events, "address held") {
		t.Errorf("the events are\n%s", events)
	}
	v.refused(one, "is alive", "cluster", "address", "claim", "192.0.2.10", "--force")
	two.Run("cluster", "address", "rm", "192.0.2.10")
	if name := v.answered(200 * time.Millisecond); name != "" {
		t.Errorf("%s answers for a removed address", name)
	}
	for _, h := range v.hosts {
		if left := v.left(h); left != "" {
			t.Errorf("%s keeps a removed address:\n%s", h.name, left)
		}
	}
	v.refused(one, "it has none", "cluster", "address", "rm", "192.0.2.10")
	vrrp := filepath.Join(t.TempDir(), "keepalived.conf")
	text := "vrrp_instance web {\n interface eth0\n advert_int 0.3\n virtual_ipaddress {\n 192.0.2.10/24\n }\n}\n"
	if err := os.WriteFile(vrrp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	two.Run("service", "import", "keepalived", vrrp, "--apply")
	v.held()
}

// scraped returns the metrics of a host about its cluster.
func scraped(t *testing.T, h *host) string {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(h.Metrics, "unix:"))
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := client.Get("http://host/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, about, _ := strings.Cut(string(all), "# HELP fairlead_cluster")
	return about
}

// TestServiceAtAddress declares a service at a virtual address in files of two hosts. It answers on the host
// that holds the address, also after a move.
func TestServiceAtAddress(t *testing.T) {
	v := &virtual{lan: newLAN(t), addr: netip.MustParseAddr("192.0.2.10")}
	v.client = v.connected(77)
	v.joined()
	hosts := v.hosts[:2]
	for i, h := range hosts {
		sandbox := kerneltest.Netns(t)
		h.Run("network", "create", "web", "--driver", "bridge", "--subnet", fmt.Sprintf("172.30.%d.0/24", i))
		h.Run("attach", "web", process.Seen(sandbox.Path()), "--name", "shop")
		place.Serve(t, sandbox.Do, ":80", func(c net.Conn) { fmt.Fprint(c, h.name) })
		declared := filepath.Join(t.TempDir(), "fairlead.yaml")
		text := "services:\n  shop:\n    address: {virtual: 192.0.2.10/24, candidates: [host1, host2], hold: 5s}\n" +
			"    port: 80\n    reals: [name=shop]\n"
		if err := os.WriteFile(declared, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h.Run("apply", "-f", declared)
		if again := h.Run("apply", "-f", declared); strings.Contains(again, "created") {
			t.Errorf("the second time, apply says %q", again)
		}
	}
	holder := v.held()
	other := hosts[1-slices.Index(hosts, holder)]
	v.hosts[2].Run("cluster", "address", "move", "192.0.2.10")
	if name := v.answered(place.Timeout); name != other.name {
		t.Errorf("after the move, %q answers, want %s", name, other.name)
	}
}
