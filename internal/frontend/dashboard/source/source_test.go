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
		s := source.New(func(context.Context) (int, error) { time.Sleep(cost); reads++; return reads, nil })
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
		s := source.New(func(ctx context.Context) (int, error) { <-ctx.Done(); return 7, nil })
		began := time.Now()
		if _, status := s.Get(t.Context()); !status.At.IsZero() || time.Since(began) != source.Patience {
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
		s := source.New(func(context.Context) (int, error) { return 7, err })
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
		})
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
		s := source.New(func(context.Context) (int, error) { return all[0], nil })
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
