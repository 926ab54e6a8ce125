// Package overlay_test tests driver vxlan with packets between hosts that switches
// connect.
package overlay_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/test/fabric"
	"fairlead/test/place"
	"fairlead/test/shell"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main})
	os.Exit(m.Run())
}

// subnets lists the network's subnets, for all hosts.
var subnets = []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/24")},
	{Prefix: netip.MustParsePrefix("fd00:9::/64")}}

// network returns the overlay of all hosts, with their addresses at the first switch.
func network(f *fabric.Fabric, v4 bool) model.Network {
	n := model.Network{Name: "net", Driver: model.DriverVXLAN, Subnets: subnets, Overlay: model.Overlay{VNI: 42}}
	for i, h := range f.Hosts {
		n.Overlay.Peers = append(n.Overlay.Peers, model.Peer{Address: h.Address(0, v4), Ranges: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(64 * i)}), 26),
			netip.MustParsePrefix(fmt.Sprintf("fd00:9::%x00/120", i+1))}})
	}
	return n
}

// state returns the state of a host with the network and the named sandboxes.
func state(h *fabric.Host, n model.Network, sandboxes ...string) model.State {
	s := model.State{Networks: []model.Network{n}}
	for _, name := range sandboxes {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Name: name, Network: n.Name, Sandbox: h.Sandbox(name)})
	}
	return s
}

func set(t testing.TB, h *fabric.Host, s model.State) model.State {
	t.Helper()
	full, err := h.Engine.Set(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return full
}

// everywhere sets up the network with one sandbox on each host: box1, box2 and
// so on, and returns their addresses.
func everywhere(t testing.TB, f *fabric.Fabric, n model.Network) [][]netip.Addr {
	t.Helper()
	var all [][]netip.Addr
	for i, h := range f.Hosts {
		full := set(t, h, state(h, n, box(i)))
		all = append(all, full.Endpoints[0].Addresses)
	}
	return all
}

func box(i int) string { return fmt.Sprint("box", i+1) }

// know adds every sandbox to its host's entry in the list of peers.
func know(n *model.Network, addrs [][]netip.Addr) {
	n.Overlay.Peers = slices.Clone(n.Overlay.Peers)
	for i := range n.Overlay.Peers {
		n.Overlay.Peers[i].Endpoints = []model.PeerEndpoint{{Addresses: addrs[i]}}
	}
}

// reach fails the test unless every sandbox gets answers from every other sandbox, and from their
// hosts.
func reach(t testing.TB, f *fabric.Fabric, addrs [][]netip.Addr) {
	t.Helper()
	for to, h := range f.Hosts {
		serve(t, h.In(box(to)), box(to))
		for from, other := range f.Hosts {
			for _, a := range addrs[to] {
				hears(t, other.In(box(from)), a, box(to))
				hears(t, other.Do, a, box(to))
			}
		}
	}
}

const port = 80

// serve answers every connection to the port with the name until the test ends. A second call does
// nothing. It does not use place.Listen, which waits while the port is in use.
func serve(t testing.TB, in place.Place, name string) {
	t.Helper()
	var l net.Listener
	err := in(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprint(":", port))
		return err
	})
	if errors.Is(err, unix.EADDRINUSE) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go place.Accept(l, func(conn net.Conn) { converse(conn, name) })
}

// converse sends the name, and then the checksum of all data that it receives.
func converse(conn net.Conn, name string) {
	fmt.Fprintln(conn, name)
	sum := sha256.New()
	if _, err := io.Copy(sum, conn); err == nil {
		fmt.Fprintf(conn, "%x\n", sum.Sum(nil))
	}
}

func dial(from place.Place, to netip.Addr, timeout time.Duration) (net.Conn, error) {
	return dialAt(from, netip.AddrPortFrom(to, port), timeout)
}

func dialAt(from place.Place, to netip.AddrPort, timeout time.Duration) (conn net.Conn, err error) {
	conn, err = place.Dial(from, "tcp", to.String(), timeout)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(timeout))
	}
	return conn, err
}

func hears(t testing.TB, from place.Place, to netip.Addr, want string) {
	t.Helper()
	hearsAt(t, from, netip.AddrPortFrom(to, port), want)
}

func hearsAt(t testing.TB, from place.Place, to netip.AddrPort, want string) {
	t.Helper()
	conn, err := dialAt(from, to, place.Timeout)
	if err != nil {
		t.Errorf("%v; want an answer of %q", err, want)
		return
	}
	defer conn.Close()
	if got, err := bufio.NewReader(conn).ReadString('\n'); err != nil || strings.TrimSpace(got) != want {
		t.Errorf("%s answers %q, %v; want %q", to, got, err, want)
	}
}

// transfer sends the given number of bytes and fails the test unless they arrive
// unchanged.
func transfer(t testing.TB, from place.Place, to netip.Addr, bytes int) {
	t.Helper()
	conn, err := dial(from, to, 3*place.Timeout)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	_, err = answers.ReadString('\n')
	data := make([]byte, bytes)
	for i := range data {
		data[i] = byte(i ^ i>>8 ^ i>>16)
	}
	_, writing := conn.Write(data)
	closing := conn.(*net.TCPConn).CloseWrite()
	got, reading := answers.ReadString('\n')
	if err := errors.Join(err, writing, closing, reading); err != nil ||
		got != fmt.Sprintf("%x\n", sha256.Sum256(data)) {
		t.Errorf("%d bytes to %s: %v, checksum %q", bytes, to, err, got)
	}
}

// sh runs a command in a place and returns its output.
func sh(t testing.TB, in place.Place, line string) string {
	t.Helper()
	return shell.Run(t, in, line)
}

// undrifted fails the test if a host's observed state differs from the desired state.
func undrifted(t testing.TB, f *fabric.Fabric) {
	t.Helper()
	for i, h := range f.Hosts {
		if ops, err := h.Engine.Verify(context.Background()); err != nil || len(ops) != 0 {
			t.Errorf("host %d differs from its desired state: %v\n%s", i+1, err, plan.Text(ops))
		}
	}
}

// unchanged fails the test unless removing everything restores the previous state.
func unchanged(t testing.TB, h *fabric.Host, before string) {
	t.Helper()
	if err := h.Engine.TearDown(context.Background()); err != nil {
		t.Error(err)
	}
	place.Unchanged(t, h.Do, before)
}
