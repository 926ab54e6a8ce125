package proxy

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// BenchmarkDatagramsAgainstDocker offers 1,200-byte datagrams as fast as one
// thread can send them, for 400 ms per round, and counts those that arrive.
func BenchmarkDatagramsAgainstDocker(b *testing.B) {
	target := netip.MustParseAddrPort("127.0.0.1:9800")
	arrived := datagramSink(b, target)
	p := newProxy(b, Role)
	set(b, p, Config{Listeners: []plan.Listener{published(model.UDP, "127.0.0.1", 8001, target)}})
	cs := []*contender{
		{name: "ours", at: netip.MustParseAddrPort("127.0.0.1:8001"), pid: p.PID()},
		{name: "docker", at: netip.MustParseAddrPort("127.0.0.1:8002"),
			pid: startDockerProxy(b, "udp", "8002", target)},
	}
	work := func(at netip.AddrPort) float64 {
		before := arrived.Load()
		clients(b, 1, 400*time.Millisecond, func(stop *atomic.Bool) float64 {
			floodDatagrams(b, at, stop)
			return 0
		})
		time.Sleep(10 * time.Millisecond)
		return float64(arrived.Load() - before)
	}
	for b.Loop() {
		for _, c := range cs {
			c.round(b, work)
		}
	}
	report(b, cs, "datagram", 1e6)
}

// sameAgain returns n message headers that share one buffer of the given size.
func sameAgain(n, size int) []mmsghdr {
	vec := &unix.Iovec{Base: &make([]byte, size)[0], Len: uint64(size)}
	hdrs := make([]mmsghdr, n)
	for i := range hdrs {
		hdrs[i].Iov, hdrs[i].Iovlen = vec, 1
	}
	return hdrs
}

// datagramSink counts the datagrams that arrive at an address.
func datagramSink(b *testing.B, at netip.AddrPort) *atomic.Int64 {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	if err := unix.Bind(fd, sockaddrOf(at)); err != nil {
		b.Fatal(err)
	}
	var arrived atomic.Int64
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for hdrs := sameAgain(64, 2048); !over.Load(); {
			n, _, e := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])),
				uintptr(len(hdrs)), unix.MSG_WAITFORONE, 0, 0)
			if e == 0 {
				arrived.Add(int64(n))
			}
		}
	}()
	b.Cleanup(func() {
		over.Store(true)
		_ = unix.Sendto(fd, []byte{0}, 0, sockaddrOf(at))
		<-ended
		unix.Close(fd)
	})
	return &arrived
}

// floodDatagrams sends until stop is true.
func floodDatagrams(b *testing.B, to netip.AddrPort, stop *atomic.Bool) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Error(err)
		return
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddrOf(to)); err != nil {
		b.Error(err)
		return
	}
	for hdrs := sameAgain(16, 1200); !stop.Load(); {
		_, _, _ = unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)),
			0, 0, 0)
	}
}
