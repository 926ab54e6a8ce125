package accesslog

import (
	"strconv"
	"strings"

	"fairlead/internal/gateway/goroutine"
)

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

// WritesOrigin reports whether lines have what the server answered, and whether they have headers.
func (l *Log) WritesOrigin() (answer, headers bool) { return l.json, l.json && l.hasHeaders }

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
