package proxy

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkLoadedRoundTripAgainstDocker measures round trips of 64 bytes while four
// streams flow to the server, for 700 ms per round.
func BenchmarkLoadedRoundTripAgainstDocker(b *testing.B) {
	const streams = 4
	target := rawServer(b, 4*streams, func(fd int) {
		var word [64]byte
		for sink := make([]byte, 1<<20); ; {
			n, _, err := unix.Recvfrom(fd, sink, 0)
			if n <= 0 || err != nil {
				return
			}
			if n == len(word) {
				_, _ = unix.Write(fd, word[:])
			}
		}
	})
	cs := contenders(b, target)
	trips := map[string][]time.Duration{}
	for b.Loop() {
		for _, c := range cs {
			c.round(b, func(at netip.AddrPort) float64 {
				return clients(b, streams+1, 700*time.Millisecond, loadedClient(b, at, func(d time.Duration) {
					trips[c.name] = append(trips[c.name], d)
				}))
			})
		}
	}
	report(b, cs, "GB", 1)
	var middle [2]time.Duration
	for i, c := range cs {
		all := slices.Sorted(slices.Values(trips[c.name]))
		middle[i] = all[len(all)/2]
		b.ReportMetric(float64(middle[i].Microseconds()), c.name+"-p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), c.name+"-p99-µs")
	}
	b.ReportMetric(float64(middle[0])/float64(middle[1]), "p50-ratio")
}

// loadedClient returns the work of each client: the first makes round trips, the others
// send as much as they can.
func loadedClient(b *testing.B, at netip.AddrPort, took func(time.Duration)) func(stop *atomic.Bool) float64 {
	var first atomic.Bool
	return func(stop *atomic.Bool) float64 {
		fd, err := rawDial(at)
		if err != nil {
			b.Error(err)
			return 0
		}
		defer unix.Close(fd)
		chunk, word, trips := make([]byte, 128<<10), make([]byte, 64), first.CompareAndSwap(false, true)
		sent := 0
		for !stop.Load() {
			began := time.Now()
			if trips {
				_, err = unix.Write(fd, word)
				if err == nil {
					_, err = unix.Read(fd, word)
				}
				took(time.Since(began))
			} else {
				var n int
				n, err = unix.Write(fd, chunk)
				sent += n
			}
			if err != nil {
				b.Error(err)
				return 0
			}
		}
		return float64(sent) / 1e9
	}
}
