package healthcheck

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"

	"fairlead/internal/gateway/goroutine"
)

// TestPanicsOfChecks lets a check panic: its server counts as down, and the next check follows.
func TestPanicsOfChecks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	to, _ := url.Parse("http://127.0.0.1:1")
	c := &Checks{report: func(_ Server, down bool, why string) {
		if !down || why != goroutine.ErrPanic.Error() {
			t.Errorf("down: %v, %s", down, why)
		}
		cancel()
	}}
	c.follow(ctx, Server{URL: to, Down: new(atomic.Bool)}) // it has no client
}
