// Package goroutine starts the goroutines of the process that serves clients. A panic ends one connection
// or one task, never the process: it is logged once, with its stack. Test/arch refuses other ways to start
// a goroutine there.
//
// It does not repair what a function has left half done: a function that holds a lock releases it with
// defer, and a loop that serves many connections recovers for each (Recover, Do). Errors that the runtime
// cannot recover from, such as concurrent writes of a map, still end the process.
package goroutine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// ErrPanic is the result of a task that has panicked.
var ErrPanic = errors.New("a mistake in the gateway")

// Go runs f on a new goroutine. The task is for the log: what f does, in the imperative.
func Go(task string, f func()) {
	go func() {
		defer Recover(task)
		f()
	}()
}

// Do runs f on this goroutine, and returns false if it has panicked.
func Do(task string, f func()) (ok bool) {
	defer Recover(task)
	f()
	return true
}

// After runs f on a goroutine of its own after the time, as time.AfterFunc does.
func After(d time.Duration, task string, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		defer Recover(task)
		f()
	})
}

// OnDone runs f on a goroutine of its own when the context ends, as context.AfterFunc does.
func OnDone(ctx context.Context, task string, f func()) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		defer Recover(task)
		f()
	})
}

// Group waits for the goroutines that it has started. Its zero value has none.
type Group struct{ running sync.WaitGroup }

// Go runs f on a new goroutine.
func (g *Group) Go(task string, f func()) {
	g.running.Add(1)
	Go(task, func() {
		defer g.running.Done()
		f()
	})
}

// Wait waits for the goroutines.
func (g *Group) Wait() { g.running.Wait() }

// Recover ends a panic of the function that defers it, logs it with slog's default logger, and then calls
// the functions of clean, which end what has failed. Handlers use http.ErrAbortHandler on purpose: it is
// not logged.
func Recover(task string, clean ...func()) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler {
		slog.Error("a task failed by a mistake in the gateway", "task", task, "panic", fmt.Sprint(v),
			"stack", string(debug.Stack()))
	}
	for _, f := range clean {
		Do("clean up after a failed task", f)
	}
}
