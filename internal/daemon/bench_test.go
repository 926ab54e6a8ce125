package daemon_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// manySandboxes is how many sandboxes are attached before the one that is measured.
const manySandboxes = 1000

// BenchmarkAttach attaches one sandbox to a bridge that has a thousand, and detaches
// it. It measures each API request until the answer.
func BenchmarkAttach(b *testing.B) {
	w := newWorld(b).start()
	w.network(lan)
	client := w.client(b)
	var took []time.Duration
	for range manySandboxes {
		took = append(took, attachTime(b, client, w.path(b)))
	}
	report(b, took[manySandboxes-100:], "first")
	spent, undone := []time.Duration{}, []time.Duration{}
	path := w.path(b)
	var cpu time.Duration
	for b.Loop() {
		before := used(b)
		spent = append(spent, attachTime(b, client, path))
		cpu += used(b) - before
		start := time.Now()
		if _, err := admin.Detach.Do(context.Background(), client,
			api.DetachRequest{Network: "lan", Sandbox: path}); err != nil {
			b.Fatal(err)
		}
		undone = append(undone, time.Since(start))
	}
	report(b, spent, "attach")
	b.ReportMetric(float64(cpu.Microseconds())/1000/float64(len(spent)), "cpu-ms/attach")
	report(b, undone, "detach")
	if err := w.TearDown(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// client serves the API until the benchmark ends, and returns a client.
func (w *world) client(b *testing.B) *admin.Client {
	return admin.NewClient(admintest.Serve(b, calls(w.Daemon)))
}

// path creates a sandbox that exists until the benchmark ends.
func (w *world) path(b *testing.B) string {
	b.Helper()
	return kerneltest.Netns(b).Path()
}

func attachTime(b *testing.B, client *admin.Client, path string) time.Duration {
	start := time.Now()
	_, err := admin.Attach.Do(context.Background(), client,
		api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: path}})
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// report reports the 50th and the 99th percentile.
func report(b *testing.B, took []time.Duration, what string) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms/"+what)
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms/"+what)
}

// used returns the CPU time of this process, including the kernel's for it. On a
// machine with other load it is more meaningful than wall-clock time.
func used(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
