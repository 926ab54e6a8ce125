package maglev_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fairlead/internal/balance/maglev"
)

func backends(n int) []maglev.Backend {
	all := make([]maglev.Backend, n)
	for i := range all {
		all[i] = maglev.Backend{Name: fmt.Sprintf("192.0.2.%d:80", i), Weight: 1}
	}
	return all
}

// owners returns the name of each bucket's backend.
func owners(all []maglev.Backend, size int) []string {
	names := make([]string, size)
	for i, b := range maglev.Table(all, size) {
		names[i] = all[b].Name
	}
	return names
}

// TestRemovalMovesFew removes each of 100 backends in turn. Each time, fewer than
// 1 % of the buckets of the other backends may change their owner.
func TestRemovalMovesFew(t *testing.T) {
	all := backends(100)
	size := maglev.Size(len(all))
	before := owners(all, size)
	var worst, sum float64
	for i := range all {
		after := owners(slices.Delete(slices.Clone(all), i, i+1), size)
		moved, others := 0, 0
		for b := range before {
			if before[b] == all[i].Name {
				continue
			}
			others++
			if before[b] != after[b] {
				moved++
			}
		}
		share := float64(moved) / float64(others)
		worst, sum = max(worst, share), sum+share
	}
	t.Logf("removing one of %d from %d buckets moves %.3f%% of the others' in the mean, %.3f%% at worst", len(all),
		size, sum/float64(len(all))*100, worst*100)
	if worst >= 0.01 {
		t.Errorf("%.3f%% of the others' buckets have moved, want less than 1%%", worst*100)
	}
}

// TestWeights checks that each backend has its share of the buckets within 1 %.
func TestWeights(t *testing.T) {
	all := backends(4)
	total := 0.0
	for i, w := range []uint32{2, 13, 111, 10} {
		all[i].Weight = w
		total += float64(w)
	}
	size := maglev.Size(len(all))
	count := map[string]int{}
	for _, name := range owners(all, size) {
		count[name]++
	}
	for _, b := range all {
		got, want := float64(count[b.Name])/float64(size), float64(b.Weight)/total
		if math.Abs(got-want)/want > 0.01 {
			t.Errorf("weight %d has %.4f of the buckets, want %.4f", b.Weight, got, want)
		}
	}
}

// TestOrderDoesNotMatter checks that the same set in any order gives the same table.
func TestOrderDoesNotMatter(t *testing.T) {
	all := backends(30)
	for i := range all {
		all[i].Weight = uint32(i % 5)
	}
	want := owners(all, 4093)
	for range 20 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if !slices.Equal(owners(all, 4093), want) {
			t.Fatal("the table depends on the order of the backends")
		}
	}
}

// TestNone checks that there is no table if no backend has a weight, and that a
// backend of weight 0 has no buckets.
func TestNone(t *testing.T) {
	if maglev.Table(nil, 1021) != nil || maglev.Table([]maglev.Backend{{Name: "a"}}, 1021) != nil {
		t.Error("Table returns a table although no backend has a weight")
	}
	all := backends(3)
	all[1].Weight = 0
	if slices.Contains(maglev.Table(all, 1021), 1) {
		t.Error("a backend of weight 0 has buckets")
	}
}

// TestSizes checks that the sizes are primes and large enough for any number of
// backends.
func TestSizes(t *testing.T) {
	for n := 1; n <= 4096; n *= 2 {
		m := maglev.Size(n)
		for d := 2; d*d <= m; d++ {
			if m%d == 0 {
				t.Errorf("%d is not a prime: it is divisible by %d", m, d)
			}
		}
		if m < 500*n {
			t.Errorf("%d buckets for %d backends", m, n)
		}
	}
}

func BenchmarkTable(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		all := backends(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				maglev.Table(all, maglev.Size(n))
			}
		})
	}
}
