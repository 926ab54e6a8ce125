// Package accesslog writes a line per request, in Traefik's common and JSON forms. A log opens no file: the process that
// serves clients needs no right to.
package accesslog

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"time"

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
