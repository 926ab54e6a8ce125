package process

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRequestWhileDaemonIsFoundEmpty: a daemon does not end if a request begins while it looks whether it is empty,
// because the request may attach something.
func TestRequestWhileDaemonIsFoundEmpty(t *testing.T) {
	i := newIdle(true)
	defer i.timer.Stop()
	handler := i.handler(http.NotFoundHandler())
	over := func() bool {
		i.expire()
		select {
		case <-i.over:
			return true
		default:
			return false
		}
	}
	i.empty = func() bool {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		return true
	}
	if over() {
		t.Error("the daemon ends although a request has come")
	}
	i.empty = func() bool { return true }
	if !over() {
		t.Error("the daemon does not end")
	}
}
