// instructions is a program for a machine of package vm. It builds paths of the laboratory, and measures how long a
// round trip, a connection and a packet take. The clock of such a machine counts instructions, so these are numbers of
// instructions.
//
//	instructions PATH[+flowtable]…
//
// It prints one line of JSON (vm.Count) per path and operation. The client is a host in the LAN. If such a host cannot
// reach the path's workload, the workload's sandbox is the client of that host.
//
// # Theory of operation
//
// One thread is client and server. Packets on a veth pair are received during the system call that sends them, so
// the data has arrived when the call returns, and no other thread needs to run. So neither scheduling nor waiting is
// counted, only the sockets at both ends and what is between them. The thread has a real-time priority while it
// measures: work that the kernel has deferred, for example the removal of an earlier path, waits until the thread
// sleeps between two batches. The batch with the fewest instructions counts, because interrupts only add some. The
// system calls themselves are subtracted: they are measured with calls that do nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/test/vm"

	"golang.org/x/sys/unix"
)

func main() {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main})
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "instructions:", err)
		os.Exit(1)
	}
}

func run(names []string) error {
	debug.SetGCPercent(-1)
	if err := seed(); err != nil {
		return err
	}
	facts, err := kernel.ProbeWithoutPrograms()
	if err != nil {
		return err
	}
	// The kernel's caches grow while the first path is measured, so its figures are not printed.
	for i, name := range append(names[:1:1], names...) {
		counts, err := measurePath(facts, name)
		if err != nil {
			return fmt.Errorf("measure %s: %w", name, err)
		}
		for _, c := range counts {
			line, err := json.Marshal(c)
			if err != nil {
				return err
			}
			if i > 0 {
				fmt.Println(string(line))
			}
		}
	}
	return nil
}

// measurePath builds a path, measures it and removes it.
func measurePath(facts plan.Facts, name string) (counts []vm.Count, err error) {
	plain, offloaded := strings.CutSuffix(name, vm.WithFlowtable)
	p, ok := suite.FindPath(plain)
	if !ok {
		return nil, errors.New("there is no such path")
	}
	r := &rig.Rig{Path: p, Maker: peer.Maker(p)}
	defer func() { err = errors.Join(err, r.Close()) }()
	if r.World, err = topology.New(facts, r.Options()); err != nil {
		return nil, err
	}
	if err := r.Start(context.Background()); err != nil {
		return nil, err
	}
	if offloaded {
		if err := offload(r); err != nil {
			return nil, err
		}
	}
	e := &ends{rig: r, from: result.Remote, atServer: workload(r), atClient: r.World.DoClient}
	if !p.Reaches(result.Remote) {
		e.from, e.atServer, e.atClient = result.Outbound, e.atClient, e.atServer
	}
	defer e.close()
	if err := e.open(); err != nil {
		return nil, err
	}
	err = e.atClient(func() (err error) {
		if err := setPriority(unix.SCHED_FIFO, 1); err != nil {
			return err
		}
		counts, err = e.measure(name)
		return errors.Join(err, setPriority(unix.SCHED_NORMAL, 0))
	})
	return counts, err
}

// offload adds a table of its own, which forwards established flows between the wire and the links of the path through
// a flowtable.
func offload(r *rig.Rig) error {
	devices := []string{topology.Wire}
	for _, link := range []string{topology.EndpointLink(rig.Workload), "fl-" + rig.Network} {
		if _, err := r.World.LinkBytes(link); err == nil {
			devices = append(devices, link)
		}
	}
	_, err := program.Shell(r.World.DoServer, fmt.Sprintf("nft 'table inet shortcut {"+
		" flowtable fast { hook ingress priority filter; devices = { %s }; };"+
		" chain forward { type filter hook forward priority 10; ct state established flow add @fast; }; }'",
		strings.Join(devices, ", ")))
	return err
}

// workload returns a function that calls another one where the path's workload is.
func workload(r *rig.Rig) func(func() error) error {
	if r.Path.Driver.Traits().HostNetns {
		return r.World.DoServer
	}
	return func(fn func() error) error { return r.World.DoSandbox(rig.Workload, fn) }
}

// ends are the server's sockets, and the address that clients dial.
type ends struct {
	rig          *rig.Rig
	from         result.Client
	atServer     func(func() error) error // calls a function in the server's network namespace
	atClient     func(func() error) error
	target       unix.Sockaddr
	tcp, udp     int
	client, peer int // of the connection for round trips
	flow         int // the client's socket for packets
}

// open opens the server's sockets.
func (e *ends) open() error {
	to := e.rig.Dial(e.from, rig.LoadPort)
	e.target = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	return e.atServer(func() (err error) {
		any4 := netip.AddrPortFrom(netip.IPv4Unspecified(), rig.LoadPort)
		if e.tcp, err = bound(any4, unix.SOCK_STREAM); err != nil {
			return err
		}
		if err = unix.Listen(e.tcp, 16); err != nil {
			return err
		}
		e.udp, err = bound(any4, unix.SOCK_DGRAM)
		return err
	})
}

func bound(at netip.AddrPort, kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
}

// A batch has so many operations. The first batch is not counted: it fills caches and tables. Before each batch, other
// threads have the time pause for what the kernel has deferred.
const (
	batch   = 100
	batches = 5
	pause   = 20 * time.Millisecond
)

// measure measures the operations in the client's network namespace, and returns the figures.
func (e *ends) measure(path string) (counts []vm.Count, err error) {
	if err := e.connect(); err != nil {
		return nil, err
	}
	for _, o := range []struct {
		operation vm.Operation
		calls     int
		do        func() error
	}{
		{vm.RoundTrip, 4, e.roundTrip},
		{vm.Connection, connectionCalls, e.connection},
		{vm.Packet, 2, e.packet},
	} {
		before, err := e.rig.Count(context.Background(), e.from)
		if err != nil {
			return nil, err
		}
		n, err := count(o.do)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.operation, err)
		}
		empty, err := count(func() error { return nothing(o.calls) })
		if err != nil {
			return nil, err
		}
		if err := e.prove(before); err != nil {
			return nil, fmt.Errorf("%s: %w", o.operation, err)
		}
		counts = append(counts, vm.Count{Path: path, Operation: o.operation, Instructions: n - empty})
	}
	return counts, nil
}

// prove checks that the packets took the path.
func (e *ends) prove(before rig.Counters) error {
	after, err := e.rig.Count(context.Background(), e.from)
	if err != nil {
		return err
	}
	p := e.rig.Prove(rig.Window{Client: e.from, Before: before, After: after, Received: batch * batches,
		Ledger: &result.Ledger{}})
	// A flowtable forwards packets before the counters of some links.
	if !p.OK && !strings.HasPrefix(p.Counter, "bytes on link") {
		return fmt.Errorf("the traffic did not take the path: %+v", p)
	}
	return nil
}

// count returns the number of instructions of an operation: that of the cheapest batch.
func count(do func() error) (int, error) {
	var all []int64
	for range batches {
		time.Sleep(pause)
		began := now()
		for range batch {
			if err := do(); err != nil {
				return 0, err
			}
		}
		all = append(all, now()-began)
	}
	return int(slices.Min(all[1:]) / batch), nil
}

// now reads the machine's clock in ns.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: the clock always exists
	return ts.Nano()
}
