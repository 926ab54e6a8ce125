package daemon_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/test/place"
)

// tries is how often each damage is done: fewer times than the daemon repairs without
// a wait.
const tries = 15

// BenchmarkHeal damages a host. It measures the time until a sandbox answers another
// host again, and until the daemon reports the repair.
//
//	go test -run '^$' -bench BenchmarkHeal -benchtime 1x -count 2 ./internal/daemon
func BenchmarkHeal(b *testing.B) {
	for _, endpoints := range []int{10, 500} {
		b.Run(fmt.Sprint(endpoints), func(b *testing.B) {
			w := newLANWorld(b)
			w.start()
			client := w.world.client(b)
			w.fill(b, client, endpoints)
			port := 9000 + endpoints - 1
			events := w.FollowEvents(b.Context())
			for _, damage := range []struct {
				name, command string
				port          int
				healed        string
			}{
				{"flush", "nft flush ruleset", port, "nft table"},
				{"detach", "until bpftool link detach pinned " + w.pins +
					"/*/links/fl_uplink-* 2>/dev/null; do :; done", port + 1000, "bpf uplinks"},
				{"delete", "until ip link del fv-box" + fmt.Sprint(endpoints-1) + " 2>/dev/null; do :; done", port +
					1000, "link fv-box"},
			} {
				b.Run(damage.name, func(b *testing.B) {
					var outages, healed []time.Duration
					for b.Loop() {
						for range tries {
							discard(events)
							w.sh(damage.command)
							began := time.Now()
							outages = append(outages, w.outage(began, damage.port))
							healed = append(healed, w.awaitEvent(events, api.Healed, damage.healed).Time.Sub(began))
						}
					}
					report(b, outages, "outage")
					report(b, healed, "healed")
				})
			}
			if err := w.TearDown(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// fill attaches n sandboxes. Each publishes a port via nat, from 9000 on, and one via
// ebpf, from 10000 on. The last one serves.
func (w *lanWorld) fill(b *testing.B, client *admin.Client, n int) {
	b.Helper()
	ctx := context.Background()
	if _, err := admin.CreateNetwork.Do(ctx, client, admin.NetworkRequest{Network: lan}); err != nil {
		w.Fatal(err)
	}
	for i := range n {
		path := strings.Replace(w.path(b), "self", fmt.Sprint(os.Getpid()), 1) // a path that other processes can open
		name := fmt.Sprint("box", i)
		if _, err := admin.Attach.Do(ctx, client, api.AttachRequest{Endpoint: model.Endpoint{Name: name, Network: "lan",
			Sandbox: path}}); err != nil {
			w.Fatal(err)
		}
		publishes := append(published(model.ViaNAT, uint16(9000+i)), published(model.ViaEBPF, uint16(10000+i))...)
		if _, err := admin.Publish.Do(ctx, client, api.PublishRequest{Target: name, Publishes: publishes}); err != nil {
			w.Fatal(err)
		}
		if i == n-1 {
			ns, err := netns.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { ns.Close() })
			sendBytes(b, ns.Do)
		}
	}
	w.reached(9000+n-1, 10000+n-1)
}

// outage returns how long it takes until a sandbox answers at the port.
func (w *lanWorld) outage(began time.Time, port int) time.Duration {
	w.Helper()
	addr := net.JoinHostPort(hosts4, fmt.Sprint(port))
	for time.Since(began) < place.Timeout {
		if w.client.Do(func() error { return readByte(addr) }) == nil {
			return time.Since(began)
		}
	}
	w.Errorf("port %d never answers again", port)
	return place.Timeout
}

// readByte reads a byte from a new connection.
func readByte(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, 20*time.Millisecond)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// sendBytes sends a byte to each client.
func sendBytes(b *testing.B, in func(func() error) error) {
	// An error means that the client is gone.
	place.Serve(b, in, ":80", func(conn net.Conn) { _, _ = conn.Write([]byte("x")) })
}

// idleFor is how long the idle daemon is measured.
const idleFor = time.Minute

// BenchmarkIdle measures the CPU time and the memory of a daemon process while nothing
// happens, with 500 sandboxes that have two published ports each. Before that it waits
// for as long as it measures: new links still send packets (IPv6), and the kernel
// reports events.
//
//	go test -run '^$' -bench BenchmarkIdle ./internal/daemon
func BenchmarkIdle(b *testing.B) {
	w := newLANWorld(b)
	socket := filepath.Join(b.TempDir(), "s")
	client, end := w.kill9(socket)
	defer end()
	pid := w.killed
	w.fill(b, client, 500)
	time.Sleep(idleFor)
	for b.Loop() {
		before := spent(b, pid)
		time.Sleep(idleFor)
		cpu := spent(b, pid) - before
		b.ReportMetric(100*cpu.Seconds()/idleFor.Seconds(), "%cpu")
		b.ReportMetric(resident(b, pid), "MB-resident")
	}
}

// spent returns the CPU time of a process, including threads that have ended
// (proc_pid_stat(5)).
func spent(b *testing.B, pid int) time.Duration {
	const utime, tick = 11, 10 * time.Millisecond // the field, after the name; USER_HZ
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	var user, system time.Duration
	if _, err := fmt.Sscan(fields[utime]+" "+fields[utime+1], &user, &system); err != nil {
		b.Fatal(err)
	}
	return (user + system) * tick
}

// resident returns the resident memory of a process in MB.
func resident(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kb float64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		b.Fatal(err)
	}
	return kb / 1024
}
