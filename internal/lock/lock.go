// Package lock provides a mutex whose holder waits for nothing outside of this process. What waits for another
// process, a network or a slow disk declares that with Outside, which panics in a goroutine that holds such a
// mutex. The check runs in tests and in the programs that tests build; elsewhere it costs a comparison.
//
// The check follows goroutines: it does not notice a holder that waits for another goroutine which waits outside.
package lock

import (
	"bytes"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"sync"
)

// checked is not empty in programs that tests build, with go build -ldflags "-X fairlead/internal/lock.checked=yes".
var checked string

// checks reports whether the check runs. The flags of a test exist before its TestMain runs.
var checks = sync.OnceValue(func() bool { return checked != "" || flag.Lookup("test.v") != nil })

// Mutex is a sync.Mutex whose holder must not call Outside.
type Mutex struct{ mu sync.Mutex }

// Lock locks m.
func (m *Mutex) Lock() {
	m.mu.Lock()
	holders.add(1)
}

// TryLock locks m unless it is locked, and reports whether it did.
func (m *Mutex) TryLock() bool {
	locked := m.mu.TryLock()
	if locked {
		holders.add(1)
	}
	return locked
}

// Unlock unlocks m. The goroutine that has locked it must call Unlock.
func (m *Mutex) Unlock() {
	holders.add(-1)
	m.mu.Unlock()
}

// Outside declares that the caller waits for something outside of this process, for example "the proxy". It panics
// if the calling goroutine holds a Mutex and the check runs.
func Outside(what string) {
	if checks() && holders.has() {
		panic(fmt.Sprintf("a goroutine waits for %s while it holds a mutex that must not wait", what))
	}
}

// Assert panics with the text if the check runs and the caller's condition does not hold.
func Assert(holds bool, text string) {
	if !holds && checks() {
		panic(text)
	}
}

// holders counts the mutexes that each goroutine holds, for the check only.
var holders = &counts{by: map[uint64]int{}}

// counts counts by goroutines. Its methods may be called concurrently.
type counts struct {
	mu sync.Mutex
	by map[uint64]int
}

func (c *counts) add(n int) {
	if !checks() {
		return
	}
	id := goroutine()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[id] += n; c.by[id] == 0 {
		delete(c.by, id)
	}
}

func (c *counts) has() bool {
	id := goroutine()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[id] > 0
}

// goroutine returns the number of the calling goroutine, which its stack begins with.
func goroutine() uint64 {
	var buf [64]byte
	text := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	text, _, _ = bytes.Cut(text, []byte(" "))
	id, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("read the number of the goroutine: %v", err))
	}
	return id
}
