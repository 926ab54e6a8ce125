// Package accesslog writes a line per request, in Traefik's common and JSON forms. A log opens no file: the process that
// serves clients needs no right to.
package accesslog

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/model/gateway"
)

// Log writes one line per request.
type Log struct {
	value gateway.AccessLog
	fields
	// json: lines have the JSON form.
	json  bool
	mu    sync.Mutex
	file  *os.File
	out   *bufio.Writer
	timer *time.Timer
	// waiting: the timer runs, because a line is buffered.
	waiting bool
}

// flushAfter is how long a line is buffered at most.
const flushAfter = time.Second

// New returns a log to the standard output.
func New(value gateway.AccessLog) (*Log, error) {
	switch value.Format {
	case "", "common", "genericCLF", "json":
	default:
		return nil, fmt.Errorf("access log format %s: want common, genericCLF or json", value.Format)
	}
	l := &Log{value: value, fields: newFields(value.Fields), json: value.Format == "json"}
	l.To(os.Stdout)
	return l, nil
}

// Open opens the file of an access log for To.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("access log: %w", err)
	}
	return f, nil
}

// To writes to the file from now on, and closes the file before.
func (l *Log) To(file *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.out.Flush() // as with each line, a full disk must not stop requests
		if l.file != os.Stdout {
			_ = l.file.Close()
		}
	}
	l.file, l.out = file, bufio.NewWriterSize(file, 4096)
}

// Flush writes what is buffered. A nil log has nothing.
func (l *Log) Flush() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.out.Flush()
}

// WritesOrigin reports whether lines have what the server answered, and whether they have headers.
func (l *Log) WritesOrigin() (answer, headers bool) { return l.json, l.json && l.hasHeaders }

// Write logs a request.
func (l *Log) Write(r *Request) {
	if !l.wants(r) {
		return
	}
	var line []byte
	if l.json {
		line = l.jsonLine(r)
	} else {
		line = l.commonLine(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.out.Write(line) // a full disk must not stop requests
	if l.value.BufferingSize == 0 {
		_ = l.out.Flush()
	} else if !l.waiting {
		l.flushLater()
	}
}

// flushLater flushes the buffer after flushAfter. No timer runs while nothing is buffered.
func (l *Log) flushLater() {
	l.waiting = true
	if l.timer != nil {
		l.timer.Reset(flushAfter)
		return
	}
	l.timer = goroutine.After(flushAfter, "write the access log", func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting = false
		_ = l.out.Flush()
	})
}

// wants reports whether the filters keep the request.
func (l *Log) wants(r *Request) bool {
	v := &l.value
	if len(v.StatusCodes) == 0 && !v.RetryAttempts && v.MinDuration == 0 {
		return true
	}
	for _, codes := range v.StatusCodes {
		low, high, ok := strings.Cut(codes, "-")
		if !ok {
			high = low
		}
		from, _ := strconv.Atoi(low)
		to, _ := strconv.Atoi(high)
		if r.Status >= from && r.Status <= to {
			return true
		}
	}
	return v.RetryAttempts && r.Attempts > 1 || v.MinDuration > 0 && r.Took >= v.MinDuration
}
