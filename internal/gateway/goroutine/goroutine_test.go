package goroutine_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"fairlead/internal/gateway/goroutine"
)

// records is a log.
type records chan string

func (records) Enabled(context.Context, slog.Level) bool { return true }
func (r records) WithAttrs([]slog.Attr) slog.Handler     { return r }
func (r records) WithGroup(string) slog.Handler          { return r }
func (r records) Handle(_ context.Context, record slog.Record) error {
	text := record.Message
	record.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	r <- text
	return nil
}

// record replaces the default log during the test.
func record(t *testing.T) records {
	was := slog.Default()
	t.Cleanup(func() { slog.SetDefault(was) })
	r := make(records, 10)
	slog.SetDefault(slog.New(r))
	return r
}

func fails() { panic("a mistake") }

// TestEachWayRecovers starts a function that panics in each way.
func TestEachWayRecovers(t *testing.T) {
	for name, start := range map[string]func(){
		"Go": func() { goroutine.Go("try", fails) },
		"Do": func() {
			if goroutine.Do("try", fails) || !goroutine.Do("succeed", func() {}) {
				t.Error("Do does not return whether the function succeeds")
			}
		},
		"After": func() { goroutine.After(0, "try", fails) },
		"OnDone": func() {
			ctx, cancel := context.WithCancel(context.Background())
			goroutine.OnDone(ctx, "try", fails)
			cancel()
		},
		"Group": func() {
			var g goroutine.Group
			g.Go("try", fails)
			g.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := record(t)
			start()
			if text := <-log; !strings.Contains(text, `task=try panic=a mistake`) ||
				!strings.Contains(text, "goroutine_test.fails") {
				t.Errorf("logged %s", text)
			}
		})
	}
}

// TestCleanUp: what fails is ended, also if a part of that panics too.
func TestCleanUp(t *testing.T) {
	log := record(t)
	ended := false
	func() {
		defer goroutine.Recover("try", fails, func() { ended = true })
		fails()
	}()
	if first, second := <-log, <-log; !ended || !strings.Contains(first, "task=try") ||
		!strings.Contains(second, "task=clean up") {
		t.Errorf("ended: %v, logged\n%s\n%s", ended, first, second)
	}
}

// TestAbortIsNoMistake: handlers abort with a panic on purpose.
func TestAbortIsNoMistake(t *testing.T) {
	log := record(t)
	if goroutine.Do("abort", func() { panic(http.ErrAbortHandler) }) || len(log) > 0 {
		t.Errorf("logged %d records", len(log))
	}
}
