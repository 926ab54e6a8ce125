package source_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/frontend/dashboard/source"
)

// TestPace: a value is read once for all who ask, again no sooner than its cost allows, and not at all without readers.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, cost := 0, 100*time.Millisecond
		s := source.New(func(context.Context) (int, error) { time.Sleep(cost); reads++; return reads, nil },
			nil)
		for range 10 {
			go s.Get(t.Context())
		}
		synctest.Wait()
		if v, status := s.Get(t.Context()); v != 1 || status.Took != cost {
			t.Errorf("the value is %d, and took %v", v, status.Took)
		}
		for range 29 { // 300 times the cost are 30 s
			time.Sleep(time.Second)
			s.Refresh()
		}
		if synctest.Wait(); reads != 1 {
			t.Errorf("within 29 s, the value is read %d times", reads)
		}
		time.Sleep(2 * time.Second)
		if v, _ := s.Get(t.Context()); v != 1 {
			t.Errorf("after 31 s, the reader waits for the value %d", v)
		}
		if synctest.Wait(); reads != 1 {
			t.Errorf("a reading that has not ended counts %d", reads)
		}
		time.Sleep(2 * cost)
		if v, _ := s.Get(t.Context()); v != 2 {
			t.Errorf("after 31 s, the value is %d", v)
		}
		time.Sleep(time.Hour)
		if synctest.Wait(); reads != 2 {
			t.Errorf("without readers, the value is read %d times", reads)
		}
	})
}

// TestSlowReading: a reader waits a moment only, and gets the value later. It has a time limit.
func TestSlowReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := source.New(func(ctx context.Context) (int, error) { <-ctx.Done(); return 7, nil }, nil)
		patient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, status := s.Get(patient); !status.At.IsZero() || time.Since(began) != time.Second {
			t.Errorf("a value at %v, after %v", status.At, time.Since(began))
		}
		time.Sleep(time.Minute)
		if v, _ := s.Get(t.Context()); v != 7 && v != 0 {
			t.Errorf("the value is %d", v)
		}
		time.Sleep(time.Hour)
	})
}

// TestFailure: after a failure the last value stays, with its age and the reason. It is dropped when it is not asked
// for.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := errors.New("no daemon")
		var err error
		s := source.New(func(context.Context) (int, error) { return 7, err }, nil)
		_, first := s.Get(t.Context())
		err = fault
		time.Sleep(2 * time.Second)
		if v, status := s.Get(t.Context()); v != 7 || !errors.Is(status.Err, fault) || !status.At.Equal(first.At) {
			t.Errorf("after a failure: %d %+v", v, status)
		}
		time.Sleep(source.Keep + time.Second)
		if v, status := s.Get(t.Context()); v != 0 || !status.At.IsZero() {
			t.Errorf("after %v without readers: %d %+v", source.Keep, v, status)
		}
	})
}

// TestExpireDuringReading: a reading that began before a request has changed the value is repeated.
func TestExpireDuringReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value := "up"
		s := source.New(func(context.Context) (string, error) {
			read := value
			time.Sleep(100 * time.Millisecond)
			return read, nil
		}, nil)
		go s.Get(t.Context())
		synctest.Wait()
		value = "draining"
		s.Expire()
		if v, _ := s.Get(t.Context()); v != "draining" {
			t.Errorf("after the request: %q", v)
		}
	})
}

// TestPanic: a mistake in a reading is an error on the page. The process and later readings go on.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []int
		s := source.New(func(context.Context) (int, error) { return all[0], nil }, nil)
		if _, status := s.Get(t.Context()); status.Err == nil {
			t.Error("a panic is no error")
		}
		all = []int{7}
		s.Expire()
		if v, status := s.Get(t.Context()); v != 7 || status.Err != nil {
			t.Errorf("after the panic: %d, %v", v, status.Err)
		}
		time.Sleep(time.Hour)
	})
}

// TestChanges: a value that may have changed is read at once, and not more often than the pace allows if that happens
// again and again.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, changes := 0, uint64(0)
		s := source.New(func(context.Context) (int, error) {
			time.Sleep(100 * time.Millisecond)
			reads++
			return 7, nil
		}, func() uint64 { return changes })
		s.Get(t.Context())
		second := func() {
			time.Sleep(time.Second)
			s.Refresh()
			synctest.Wait()
		}
		for range 10 {
			second()
		}
		changes++
		for range 2 {
			second()
		}
		if reads != 2 {
			t.Errorf("2 s after a change, the value was read %d times", reads)
		}
		for range 300 {
			changes++
			second()
		}
		if most := 300/30 + 1 + int(source.Ahead/(30*time.Second)) + 1; reads > most {
			t.Errorf("with a change each second, the value was read %d times in 312 s, want at most %d", reads, most)
		}
		version := s.Refresh().Version
		time.Sleep(time.Second)
		if got := s.Refresh().Version; got != version {
			t.Errorf("the same value has the version %d, and had %d", got, version)
		}
		time.Sleep(time.Hour)
	})
}

// TestDerive: what is made of a value is made once, and again of another value.
func TestDerive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value, made := []int{1, 2}, 0
		s := source.New(func(context.Context) ([]int, error) { return value, nil }, nil)
		length := func() int {
			n, _ := source.Derive(t.Context(), s, "length", func(all []int) int { made++; return len(all) })
			return n
		}
		if length(); length() != 2 || made != 1 {
			t.Errorf("it is made %d times", made)
		}
		value = []int{1}
		time.Sleep(2 * time.Second)
		if length() != 1 || made != 2 {
			t.Errorf("of another value, it is made %d times", made)
		}
		time.Sleep(time.Hour)
	})
}
