package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/child"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// The comparisons alternate between Fairlead's proxy and docker-proxy, one round
// of each per iteration:
//
//	go test -run '^$' -bench AgainstDocker -benchtime 5x ./internal/proxy

const dockerProxy = "/usr/sbin/docker-proxy"

// contender is a proxy process that forwards from at to the benchmark's server.
type contender struct {
	name string
	at   netip.AddrPort
	pid  int
	work float64 // GB or connections
	wall time.Duration
	cpu  time.Duration
}

// contenders starts both proxies in front of target.
func contenders(b *testing.B, target netip.AddrPort) []*contender {
	if _, err := os.Stat(dockerProxy); err != nil {
		b.Skipf("nothing to compare with: %v", err)
	}
	p := newProxy(b, Role)
	set(b, p, oneTCP("127.0.0.1", 8001, target))
	return []*contender{
		{name: "ours", at: netip.MustParseAddrPort("127.0.0.1:8001"), pid: p.PID()},
		{name: "docker", at: netip.MustParseAddrPort("127.0.0.1:8002"),
			pid: startDockerProxy(b, "tcp", "8002", target)},
	}
}

// startDockerProxy runs docker-proxy, which reports on descriptor 3 that it is
// ready.
func startDockerProxy(b *testing.B, proto, port string, target netip.AddrPort) int {
	ready, says, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(dockerProxy, "-proto", proto, "-host-ip", "127.0.0.1", "-host-port", port,
		"-container-ip", target.Addr().String(), "-container-port", strconv.Itoa(int(target.Port())))
	cmd.ExtraFiles = []*os.File{says}
	p, err := child.Start(context.Background(), cmd, child.Place{})
	if err != nil {
		b.Fatal(err)
	}
	says.Close()
	b.Cleanup(func() {
		ready.Close()
		_ = p.Kill()
	})
	word := make([]byte, 2)
	if _, err := ready.Read(word); err != nil || word[0] != '0' {
		b.Fatalf("docker-proxy is not ready: %q, %v", word, err)
	}
	return cmd.Process.Pid
}

// cpuOf returns the CPU time of a process's threads, in nanosecond resolution.
func cpuOf(b *testing.B, pid int) time.Duration {
	var sum time.Duration
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// round measures one round of work on one contender.
func (c *contender) round(b *testing.B, work func(at netip.AddrPort) float64) {
	cpu, start := cpuOf(b, c.pid), time.Now()
	c.work += work(c.at)
	c.wall += time.Since(start)
	c.cpu += cpuOf(b, c.pid) - cpu
}

// report prints rates, CPU time per unit, and Fairlead's values divided by
// docker-proxy's.
func report(b *testing.B, cs []*contender, unit string, per float64) {
	var rate, cost [2]float64
	for i, c := range cs {
		rate[i] = c.work / c.wall.Seconds()
		cost[i] = c.cpu.Seconds() / c.work * per
		b.ReportMetric(rate[i], c.name+"-"+unit+"/s")
		b.ReportMetric(cost[i], fmt.Sprintf("%s-cpu-s/%g%s", c.name, per, unit))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate[0]/rate[1], "rate-ratio")
	b.ReportMetric(cost[0]/cost[1], "cpu-ratio")
}

func sockaddrOf(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// rawServer accepts on a free port of 127.0.0.1 with threads, each of which
// handles one connection at a time.
func rawServer(b *testing.B, threads int, handle func(fd int)) netip.AddrPort {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	if err := unix.Bind(l, sockaddrOf(netip.MustParseAddrPort("127.0.0.1:0"))); err != nil {
		b.Fatal(err)
	}
	if err := unix.Listen(l, 4096); err != nil {
		b.Fatal(err)
	}
	for range threads {
		go func() {
			for {
				fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
				if err != nil {
					return
				}
				handle(fd)
				unix.Close(fd)
			}
		}()
	}
	b.Cleanup(func() {
		_ = unix.Shutdown(l, unix.SHUT_RDWR)
		unix.Close(l)
	})
	name, err := unix.Getsockname(l)
	if err != nil {
		b.Fatal(err)
	}
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*unix.SockaddrInet4).Port))
}

func rawDial(at netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, sockaddrOf(at)); err != nil {
		return 0, err
	}
	return fd, nil
}

// clients runs work on n threads for a while and adds up what they did.
func clients(b *testing.B, n int, d time.Duration, work func(stop *atomic.Bool) float64) float64 {
	var stop atomic.Bool
	sums := make([]float64, n)
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() { sums[i] = work(&stop) })
	}
	time.Sleep(d)
	stop.Store(true)
	done.Wait()
	var sum float64
	for _, s := range sums {
		sum += s
	}
	return sum
}

// BenchmarkBulkAgainstDocker sends ten streams for 700 ms per round. The
// server discards without copying, so that the proxy's share is large.
func BenchmarkBulkAgainstDocker(b *testing.B) {
	const streams = 10
	target := rawServer(b, 2*streams, func(fd int) {
		for sink := make([]byte, 1<<20); ; {
			n, _, err := unix.Recvfrom(fd, sink, unix.MSG_TRUNC)
			if n <= 0 || err != nil {
				return
			}
		}
	})
	cs := contenders(b, target)
	chunk := make([]byte, 128<<10)
	work := func(at netip.AddrPort) float64 {
		return clients(b, streams, 700*time.Millisecond, func(stop *atomic.Bool) float64 {
			fd, err := rawDial(at)
			if err != nil {
				b.Error(err)
				return 0
			}
			defer unix.Close(fd)
			var sent int
			for !stop.Load() {
				n, err := unix.Write(fd, chunk)
				if err != nil {
					b.Error(err)
					return 0
				}
				sent += n
			}
			return float64(sent) / 1e9
		})
	}
	for b.Loop() {
		for _, c := range cs {
			c.round(b, work)
		}
	}
	report(b, cs, "GB", 1)
}

// BenchmarkCRRAgainstDocker connects, sends a request, reads the answer and
// closes, on eight threads for 300 ms per round.
func BenchmarkCRRAgainstDocker(b *testing.B) {
	const threads = 8
	target := rawServer(b, threads+8, func(fd int) {
		var word [64]byte
		if n, err := unix.Read(fd, word[:]); err != nil || n <= 0 {
			return
		}
		_, _ = unix.Write(fd, word[:])
		_, _ = unix.Read(fd, word[:])
	})
	cs := contenders(b, target)
	work := func(at netip.AddrPort) float64 {
		return clients(b, threads, 300*time.Millisecond, func(stop *atomic.Bool) float64 {
			var done float64
			for !stop.Load() {
				if err := connectAskClose(at); err != nil {
					b.Error(err)
					return done
				}
				done++
			}
			return done
		})
	}
	for b.Loop() {
		for _, c := range cs {
			c.round(b, work)
		}
	}
	report(b, cs, "conn", 1000)
}

// connectAskClose is one transaction. The client closes first.
func connectAskClose(at netip.AddrPort) error {
	fd, err := rawDial(at)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var word [64]byte
	if _, err := unix.Write(fd, word[:]); err != nil {
		return err
	}
	n, err := unix.Read(fd, word[:])
	if err == nil && n != len(word) {
		err = fmt.Errorf("answer of %d bytes, want %d", n, len(word))
	}
	return err
}

// benchRange measures Set of n new ports, control round trip included, and
// the process's memory after it.
func benchRange(b *testing.B, cfg Config) {
	p := newProxy(b, Role)
	for b.Loop() {
		set(b, p, cfg)
		b.StopTimer()
		b.ReportMetric(rss(b, p.PID()), "RSS-MB")
		set(b, p, Config{})
		b.StartTimer()
	}
}

// rss returns a process's resident memory in MB.
func rss(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / 1e6
}

func BenchmarkSetThousand(b *testing.B) {
	ports := model.PortRange{First: 20000, Last: 20999}
	every, target := netip.IPv4Unspecified(), netip.MustParseAddr("10.77.0.1")
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		b.Run(string(proto)+"-reservations", func(b *testing.B) {
			benchRange(b, Config{Reservations: []plan.Reservation{{Proto: proto, Host: every, Ports: ports}}})
		})
		b.Run(string(proto)+"-listeners", func(b *testing.B) {
			benchRange(b, Config{Listeners: []plan.Listener{{Proto: proto, Host: every, Ports: ports, Target: target,
				TargetPorts: ports}}})
		})
	}
	b.Run("tcp-listeners-apart", func(b *testing.B) {
		var cfg Config
		for i := range ports.Len() {
			port := model.Port(ports.First + uint16(i))
			cfg.Listeners = append(cfg.Listeners,
				plan.Listener{Proto: model.TCP, Host: every, Ports: port, Target: target, TargetPorts: port})
		}
		benchRange(b, cfg)
	})
}
