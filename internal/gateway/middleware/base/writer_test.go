package base

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHeadWriterFinish checks that a handler that has written its head is not called
// again.
func TestHeadWriterFinish(t *testing.T) {
	calls := 0
	w := &HeadWriter{ResponseWriter: httptest.NewRecorder(), Before: func(int) { calls++ }}
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(http.StatusNotFound)
	w.Flush()
	w.Finish()
	if calls != 1 {
		t.Errorf("the function was called %d times", calls)
	}
}
