// Package recovery limits a panic to the object of a configuration that caused it. It does not decide whether the state
// is safe afterwards: each caller says in a comment why it is.
package recovery

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Object calls f, which reads, checks or builds one object: a router, a container, a file, a record. If f panics,
// Object
// returns an error with the panic and its place, for the state of the object. The log has the stack, once for each
// place: the same object panics again with each configuration. Object does not recover what Go does not: an overflow of
// the stack, no memory left, concurrent writes to a map. It may be called concurrently.
func Object(name string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			at := place()
			if _, known := logged.LoadOrStore(at, true); !known {
				slog.Error("internal error: one object is not in use: report it with this stack", "object", name,
					"panic", v, "at", at, "stack", string(debug.Stack()))
			}
			err = fmt.Errorf("internal error at %s: %v: report it with the stack in the log", at, v)
		}
	}()
	f()
	return nil
}

// logged has the places whose stacks are in the log. The program has a limited number of them.
var logged sync.Map

// place returns the line that panicked, for example "wanted.go:256". The deferred function that has recovered calls it.
func place() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for panicked := false; ; {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicked = true
		case panicked && !strings.HasPrefix(f.Function, "runtime."), !more:
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
	}
}
