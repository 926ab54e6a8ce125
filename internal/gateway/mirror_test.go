package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestCopiesAreLimited sends requests with a mirror that does not answer: all are answered, and those above a
// limit are not copied.
func TestCopiesAreLimited(t *testing.T) {
	const copies, body = 256, 1 << 20
	for name, c := range map[string]struct {
		body string
		most int
	}{"by number": {"", copies}, "by bytes": {strings.Repeat("x", body), 63}} { // the 64th fills the memory
		t.Run(name, func(t *testing.T) {
			var got atomic.Int64
			release := make(chan struct{})
			mirror := server(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				got.Add(1)
				<-release
			})
			t.Cleanup(func() { close(release) })
			w := newWorld(t, model.Static{Metrics: &model.Metrics{EntryPoint: "web"}})
			w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "m@file"}},
				map[string]*model.Service{"mirror@file": mirror, "s@file": server(t, named("answer")),
					"m@file": {Mirroring: &model.Mirroring{Service: "s@file",
						Mirrors: []model.Mirror{{Name: "mirror@file", Percent: 100}}}}})
			for range c.most + 2 {
				answer, err := w.client.Post("http://a.test/", "text/plain", strings.NewReader(c.body))
				if err != nil {
					t.Fatal(err)
				}
				if answer.Body.Close(); answer.StatusCode != 200 {
					t.Fatalf("status %d", answer.StatusCode)
				}
			}
			eventually(t, "the mirror has the copies", func() error { return firstError(int(got.Load()) >= c.most) })
			_, metrics := w.get("http://x.test/metrics")
			if want := "fairlead_gateway_dropped_copies_total 2\n"; !strings.Contains(metrics, want) {
				t.Errorf("%d copies of %d: the metrics lack %q", got.Load(), c.most+2, want)
			}
		})
	}
}
