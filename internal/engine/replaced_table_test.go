package engine_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// TestReplacedTablesLoseNoConnection replaces the nft tables again and again, as the first start of another version
// does, while clients open connections to a port published via nat and to a service of data plane nft. None is refused.
// FAIRLEAD_REPLACEMENTS sets how often.
func TestReplacedTablesLoseNoConnection(t *testing.T) {
	replacements := 50
	if text := os.Getenv("FAIRLEAD_REPLACEMENTS"); text != "" {
		var err error
		if replacements, err = strconv.Atoi(text); err != nil {
			t.Fatalf("read FAIRLEAD_REPLACEMENTS: %v", err)
		}
	}
	w := world(t)
	s := dual(t, w, model.DriverBridge, "web")
	publish(&s, "web", model.ViaNAT, model.TCP, 8080, 80)
	s.Services = []model.VirtualService{{Name: "shop", Addresses: []netip.Addr{topology.ServerAddr4}, Proto: model.TCP,
		Ports: []model.PortRange{model.Port(8081)}, Plane: model.PlaneNFT,
		Reals: []model.RealServer{{Address: netip.MustParseAddr("172.30.0.2"), Port: 80, Weight: 1}}}}
	mustSet(t, w, s)
	serve(t, in(w, "web"), "web", ":80")
	if err := w.DoClient(topology.MorePorts); err != nil {
		t.Fatal(err)
	}
	var again []plan.Op
	for _, o := range w.Engine.Account() {
		if plan.GroupOf(o).IsTable() {
			again = append(again, plan.Op{Object: o})
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var opened atomic.Int64
	for range 2 {
		for _, port := range []int{8080, 8081} {
			clients.Go(func() {
				err := w.DoClient(func() error { return connects(ctx, port, &opened) })
				if err != nil {
					t.Errorf("connect to port %d: %v", port, err)
				}
			})
		}
	}
	for range replacements {
		before := opened.Load()
		if _, err := w.ServerHost().Apply(again); err != nil {
			t.Error(err)
			break
		}
		for opened.Load() < before+10 && !t.Failed() {
			runtime.Gosched()
		}
	}
	stop()
	clients.Wait()
	t.Logf("%d connections during %d replacements", opened.Load(), replacements)
}

// connects opens connections to a port of the server host until ctx ends. It returns an error if one is refused.
func connects(ctx context.Context, port int, opened *atomic.Int64) error {
	to := &unix.SockaddrInet4{Port: port, Addr: topology.ServerAddr4.As4()}
	for ctx.Err() == nil {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		reset := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		err = errors.Join(reset, connect(fd, to), unix.Close(fd))
		if err != nil {
			return err
		}
		opened.Add(1)
	}
	return nil
}

// connect connects a socket. A signal of the Go runtime interrupts the call, but not the connection.
func connect(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	for errors.Is(err, unix.EINTR) {
		if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err == nil {
			var refused int
			refused, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			err = errors.Join(err, errnoOf(refused))
		}
	}
	return err
}

func errnoOf(code int) error {
	if code == 0 {
		return nil
	}
	return unix.Errno(code)
}
