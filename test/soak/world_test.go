package soak_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/features"
	"fairlead/test/place"
	"fairlead/test/process"

	"golang.org/x/sys/unix"
)

// vain is how long a client waits on a port that must not answer.
const vain = 3 * time.Second

// The workloads, and the ports on which each listens: for the publishes that stay, and for those
// that change.
var (
	names   = []string{"web", "api", "far", "box"}
	protos  = []model.Proto{model.TCP, model.UDP}
	kept    = uint16(80)
	serving = model.PortRange{First: 9000, Last: 9000 + widest - 1}
)

// world consists of the two hosts, their sandboxes, and a bpffs for the pins.
type world struct {
	*topology.World
	t     *testing.T
	facts plan.Facts
	// base is the desired state without publishes.
	base model.State
	// pins is a bpffs that exists only through this open file.
	pins *os.File
}

func newWorld(t *testing.T) *world {
	t.Helper()
	facts := features.Facts(t)
	w := &world{t: t, facts: facts, pins: bpffs(t)}
	var err error
	if w.World, err = topology.New(facts, topology.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.World.Close(); err != nil {
			t.Error(err)
		}
	})
	w.base.Networks = []model.Network{
		network("lan", model.DriverBridge, "172.30.0.0/24", "fd00:30::/64"),
		network("links", model.DriverRouted, "172.31.0.0/24", "fd00:31::/64"),
	}
	for i, name := range names {
		w.sandbox(name, w.base.Networks[i/2].Name)
	}
	return w
}

func network(name string, d model.Driver, v4, v6 string) model.Network {
	return model.Network{Name: name, Driver: d, Subnets: []model.Subnet{
		{Prefix: netip.MustParsePrefix(v4)}, {Prefix: netip.MustParsePrefix(v6)}}}
}

// sandbox creates a sandbox with a server, and its endpoint.
func (w *world) sandbox(name, network string) {
	w.t.Helper()
	path, err := w.Sandbox(name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.base.Endpoints = append(w.base.Endpoints,
		model.Endpoint{Name: name, Network: network, Sandbox: process.Seen(path)})
	for _, port := range append(ports(serving), kept) {
		serve(w.t, w.in(name), name, port)
	}
}

func ports(r model.PortRange) []uint16 {
	var all []uint16
	for i := range r.Len() {
		all = append(all, r.First+uint16(i))
	}
	return all
}

// in returns the place of a sandbox.
func (w *world) in(sandbox string) place.Place {
	return func(fn func() error) error { return w.DoSandbox(sandbox, fn) }
}

// pinned returns the directory of the pins.
func (w *world) pinned() string {
	return fmt.Sprintf("/proc/%d/fd/%d/fairlead", os.Getpid(), w.pins.Fd())
}

// bpffs creates a bpffs without a mount point: it exists as long as the open file.
func bpffs(t *testing.T) *os.File {
	t.Helper()
	fs, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatalf("make a bpffs: %v", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Fatalf("make a bpffs: %v", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("make a bpffs: %v", err)
	}
	f := os.NewFile(uintptr(fd), "bpffs")
	t.Cleanup(func() { f.Close() })
	return f
}

// nothingLeft fails the test if the engine has left a link on the server host, or any process.
func (w *world) nothingLeft() {
	w.t.Helper()
	var links []string
	err := w.DoServer(func() error {
		all, err := net.Interfaces()
		for _, l := range all {
			links = append(links, l.Name)
		}
		return err
	})
	if err != nil || !slices.Equal(links, []string{"lo", topology.Wire}) {
		w.t.Errorf("links left on the server host: %v, %v", links, err)
	}
	// Orphans are children of this process, see newRoom.
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		w.t.Errorf("a process is left at the end: %d, %v", pid, err)
	}
}
