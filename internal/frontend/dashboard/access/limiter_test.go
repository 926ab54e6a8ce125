package access

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// TestWrongTokensAtOnce: of many wrong tokens that an address sends at the same time, no more are looked at than of
// those that it sends one after the other.
func TestWrongTokensAtOnce(t *testing.T) {
	l := newLimiter()
	var passed atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if l.pass("192.0.2.1:1000", false) {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if got := passed.Load(); got != maxWrong {
		t.Errorf("%d wrong tokens passed, want %d", got, maxWrong)
	}
	if l.pass("192.0.2.1:1001", true) {
		t.Error("the right token passes after too many wrong ones")
	}
	if !l.pass("192.0.2.2:1000", true) {
		t.Error("another address is held up")
	}
}

// TestManyAddresses: a host with more addresses than are remembered holds up no other one, and its last addresses
// have their limit.
func TestManyAddresses(t *testing.T) {
	l := newLimiter()
	at := func(i int) string { return fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff) }
	const n = 3 * maxAddresses
	for i := range n {
		for range maxWrong {
			l.pass(at(i), false)
		}
	}
	if len(l.wrong) != maxAddresses {
		t.Errorf("%d addresses are remembered, want %d", len(l.wrong), maxAddresses)
	}
	if l.pass(at(n-1), false) {
		t.Error("the last address has no limit")
	}
	if !l.pass("192.0.2.2:1000", true) || !l.pass("[2001:db8:ffff::1]:1", true) {
		t.Error("a host that sends its right token is held up by others")
	}
}
